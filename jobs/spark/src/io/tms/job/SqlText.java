package io.tms.job;

import java.util.Map;
import java.util.StringJoiner;

/**
 * The text of the SQL that the job runs. The only place where a value from outside becomes part of a statement.
 * It must not know where the values come from.
 */
final class SqlText {
  /** Digits of an instant that fits the procedure's number; a leading zero would be lost in it. */
  private static final String INSTANT = "[1-9][0-9]{13,17}";

  private SqlText() {}

  /**
   * A SQL string literal that Spark's parser and Hudi's parser read back as exactly {@code value}.
   * The session must have `spark.sql.variable.substitute` and `spark.sql.parser.escapedStringLiterals` off,
   * or `${…}` and backslashes are read otherwise.
   */
  static String quote(String value) {
    StringBuilder out = new StringBuilder(value.length() + 16).append('\'');
    for (int i = 0; i < value.length(); i++) {
      char c = value.charAt(i);
      if (c == '\\' || c == '\'') {
        out.append('\\').append(c);
      } else if (c < 0x20 || c == 0x7f) {
        out.append(String.format("\\u%04X", (int) c));
      } else {
        out.append(c);
      }
    }
    return out.append('\'').toString();
  }

  /** Whether this is an instant that a call may name. */
  static boolean isInstant(String instant) {
    return instant != null && instant.matches(INSTANT);
  }

  static String compaction(String basePath, String instant, Map<String, String> options) {
    return "call run_compaction(op => 'run', path => " + quote(basePath) + ", timestamp => " + checked(instant)
        + options(options) + ")";
  }

  static String clustering(String basePath, String instant, Map<String, String> options) {
    return "call run_clustering(path => " + quote(basePath) + ", op => 'execute', instants => "
        + quote(checked(instant)) + options(options) + ")";
  }

  static String clean(String name, Map<String, String> options) {
    return "call run_clean(table => " + quote(name) + options(options) + ")";
  }

  /**
   * A catalog name that only this attempt uses: the catalog is shared, and a fixed name cleaned another table
   * (measured on 1.2.0).
   */
  static String catalogName(String tag) {
    return tag.replace('-', '_');
  }

  /**
   * Whether the procedures' `options => 'k=v,k2=v2'` passes this value whole: they cut at each comma and equals sign,
   * and fail on an empty value (a comma was measured on all three releases).
   */
  static boolean passesByOptions(String value) {
    return value.matches("[A-Za-z0-9._:/+$@-]+");
  }

  private static String options(Map<String, String> options) {
    if (options.isEmpty()) {
      return "";
    }
    StringJoiner joined = new StringJoiner(",");
    for (Map.Entry<String, String> option : options.entrySet()) {
      if (!passesByOptions(option.getValue())) {
        throw new IllegalArgumentException("an option that would be cut: " + option.getKey());
      }
      joined.add(option.getKey() + "=" + option.getValue());
    }
    return ", options => " + quote(joined.toString());
  }

  private static String checked(String instant) {
    if (!isInstant(instant)) {
      throw new IllegalArgumentException("not an instant of 14 to 18 digits");
    }
    return instant;
  }
}
