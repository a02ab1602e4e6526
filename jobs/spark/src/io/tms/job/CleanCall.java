package io.tms.job;

import java.net.URI;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogStorageFormat;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.JavaConverters;
import scala.collection.immutable.Map$;
import scala.collection.immutable.Nil$;

/**
 * One clean. `run_clean` takes a catalog name, never a path, so the table gets one for the time of the call.
 *
 * <p>The name is put into Spark's in-memory catalog directly and not by `create table … using hudi location …`: on
 * 0.15.0 and 1.0.2 that statement rewrites the table's hoodie.properties without a lock (it adds a schema named after
 * the catalog entry, sets the database name, and on 0.15.0 drops the timeline's time zone; measured).
 */
final class CleanCall {
  /**
   * Paths that Hudi takes from a catalog entry as they are. All others come back percent-encoded, and Hudi then looks
   * for a table that does not exist (measured on all three releases).
   */
  private static final String CATALOG_PATH = "[A-Za-z0-9._:/=+,@~-]+";

  private CleanCall() {}

  static List<Row> run(SparkSession spark, String tag, Leave leave) throws ReflectiveOperationException {
    if (!leave.basePath.matches(CATALOG_PATH)) {
      return byClient(spark, leave);
    }
    String name = SqlText.catalogName(tag);
    SessionCatalog catalog = spark.sessionState().catalog();
    TableIdentifier identifier = new TableIdentifier(name, Option.apply("default"));
    catalog.createTable(entry(identifier, leave.basePath), false, false);
    try {
      return spark.sql(SqlText.clean(name, leave.callOptions())).collectAsList();
    } finally {
      // The entry is external, so no file goes with it.
      catalog.dropTable(identifier, true, false);
    }
  }

  /** The schema stays empty: Hudi reads the table's own. */
  private static CatalogTable entry(TableIdentifier identifier, String basePath) {
    URI location = new Path(basePath).toUri();
    Option<String> none = Option.empty();
    CatalogStorageFormat storage =
        new CatalogStorageFormat(Option.apply(location), none, none, none, false, Map$.MODULE$.empty());
    return new CatalogTable(identifier, CatalogTableType.EXTERNAL(), storage, new StructType(), Option.apply("hudi"),
        nil(), Option.empty(), "", System.currentTimeMillis(), -1L, "", Map$.MODULE$.empty(), Option.empty(), none,
        none, nil(), false, true, Map$.MODULE$.empty(), none);
  }

  @SuppressWarnings({"unchecked", "rawtypes"})
  private static scala.collection.immutable.List<String> nil() {
    return (scala.collection.immutable.List) Nil$.MODULE$;
  }

  /**
   * What `run_clean` does behind its catalog name, with the path itself: the client that the procedures make, and its
   * `clean()`. By reflection, since no Hudi class is there to compile against; the names are the same in 0.15.0, 1.0.2
   * and 1.2.0.
   */
  private static List<Row> byClient(SparkSession spark, Leave leave) throws ReflectiveOperationException {
    ClassLoader loader = Thread.currentThread().getContextClassLoader();
    Class<?> utils = Class.forName("org.apache.hudi.HoodieCLIUtils$", true, loader);
    Object client = utils
        .getMethod("createHoodieWriteClient", SparkSession.class, String.class,
            scala.collection.immutable.Map.class, Option.class)
        .invoke(utils.getField("MODULE$").get(null), spark, leave.basePath, scalaMap(leave.callOptions()),
            Option.empty());
    try {
      Object done = client.getClass().getMethod("clean").invoke(client);
      if (done == null) {
        return Collections.emptyList();
      }
      List<Object> values = new ArrayList<>();
      for (String getter : new String[] {"getStartCleanTime", "getTimeTakenInMillis", "getTotalFilesDeleted"}) {
        values.add(done.getClass().getMethod(getter).invoke(done));
      }
      return Collections.singletonList(org.apache.spark.sql.RowFactory.create(values.toArray()));
    } finally {
      client.getClass().getMethod("close").invoke(client);
    }
  }

  private static scala.collection.immutable.Map<String, String> scalaMap(Map<String, String> map) {
    scala.collection.immutable.Map<String, String> all = Map$.MODULE$.empty();
    scala.collection.mutable.Map<String, String> more = JavaConverters.mapAsScalaMapConverter(map).asScala();
    return all.$plus$plus(more);
  }
}
