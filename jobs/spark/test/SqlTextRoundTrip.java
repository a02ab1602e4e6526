package io.tms.job;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import scala.Product;
import scala.collection.Iterator;

/** Every literal that the job writes must be read back as it was, by Spark's parser and by the one of Hudi's `call`. */
public final class SqlTextRoundTrip {
  public static void main(String[] argv) throws Exception {
    SparkSession spark = SparkSession.builder().appName("roundtrip")
        .config("spark.serializer", "org.apache.spark.serializer.KryoSerializer")
        .config("spark.kryo.registrator", "org.apache.spark.HoodieSparkKryoRegistrar")
        .config("spark.sql.extensions", "org.apache.spark.sql.hudi.HoodieSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.hudi.catalog.HoodieCatalog")
        .getOrCreate();
    spark.conf().set("spark.sql.variable.substitute", "false");
    spark.conf().set("spark.sql.parser.escapedStringLiterals", "false");
    List<String> values = new ArrayList<>(Arrays.asList("/plain", "od%41d", "ä b", "it's", "a\"b", "\\", "\\'", "\\\\'",
        "a\\nb", "a\nb\r\tc", "\u0000", "\u001a", "%_\\%\\_", "${HOME}", "${spark.app.name}", "--x", "/* x */", "a;b", "`",
        "\\u0041", "\\101", "\ud83d\ude00", "''", "x' , op => 'schedule", ""));
    char[] letters = "\\\\''\"%_n0u41;${}` \n\r\t\u0000\u00e4\u4e2d-/*".toCharArray();
    Random random = new Random(7);
    for (int i = 0; i < 2000; i++) {
      StringBuilder value = new StringBuilder();
      for (int n = random.nextInt(12); n > 0; n--) {
        value.append(letters[random.nextInt(letters.length)]);
      }
      values.add(value.toString());
    }
    for (String value : values) {
      check(value, literals(plan(spark, "select " + SqlText.quote(value))), "select");
      check(value, literals(plan(spark, SqlText.clean(value, Collections.emptyMap()))), "call run_clean");
      check(value, literals(plan(spark, SqlText.compaction(value, "20261130120000000", Collections.emptyMap()))), "call run_compaction");
    }
    System.out.println("ROUNDTRIP ok " + values.size());
    spark.stop();
  }

  private static LogicalPlan plan(SparkSession spark, String sql) throws Exception {
    return spark.sessionState().sqlParser().parsePlan(sql);
  }

  private static void check(String value, List<String> read, String where) {
    if (!read.contains(value)) {
      System.out.println("ROUNDTRIP bad in " + where + ": " + SqlText.quote(value) + " was read as " + read);
      System.exit(1);
    }
  }

  /** Text literals anywhere in a parsed statement, without naming a class of Hudi. */
  private static List<String> literals(Object node) {
    List<String> found = new ArrayList<>();
    if (node instanceof Literal) {
      found.add(String.valueOf(((Literal) node).value()));
    } else if (node instanceof scala.collection.Iterable) {
      for (Iterator<?> it = ((scala.collection.Iterable<?>) node).iterator(); it.hasNext(); ) {
        found.addAll(literals(it.next()));
      }
    } else if (node instanceof Product) {
      for (Iterator<?> it = ((Product) node).productIterator(); it.hasNext(); ) {
        found.addAll(literals(it.next()));
      }
    }
    return found;
  }
}
