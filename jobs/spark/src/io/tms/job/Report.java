package io.tms.job;

import java.io.PrintStream;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;

/**
 * Everything the job says, on stdout and to TMS, passes here: one line each, bounded, and with the values of secret
 * options struck out. Option values are never printed on purpose; exceptions may quote them.
 */
final class Report {
  private static final Pattern SECRET_KEY =
      Pattern.compile("(?i)secret|password|token|access.?key|credential");
  /** Shorter values would strike harmless text out of every message. */
  private static final int SECRET_CHARS_MIN = 4;
  private static final int LINE_CHARS_MAX = 1000;
  private static final int CAUSES_MAX = 20;

  private final PrintStream out;
  private List<String> secrets = Collections.emptyList();
  private volatile List<Pattern> patterns = Collections.emptyList();

  Report(PrintStream out) {
    this.out = out;
  }

  /** Strikes this value out of all that is said from now on. */
  synchronized void hide(String value) {
    if (value == null || value.length() < SECRET_CHARS_MIN || secrets.contains(value)) {
      return;
    }
    List<String> grown = new ArrayList<>(secrets);
    grown.add(value);
    // Longest first: a secret that holds another one must go as a whole.
    grown.sort(Comparator.comparingInt(String::length).reversed());
    secrets = grown;
    List<Pattern> compiled = new ArrayList<>();
    for (String secret : grown) {
      // In any case: Hudi quotes an enum's value in capitals (measured).
      compiled.add(Pattern.compile(Pattern.quote(secret), Pattern.CASE_INSENSITIVE | Pattern.UNICODE_CASE));
    }
    patterns = compiled;
  }

  static boolean isSecret(String key) {
    return SECRET_KEY.matcher(key).find();
  }

  void hideSecretsOf(Map<String, String> options) {
    for (Map.Entry<String, String> option : options.entrySet()) {
      if (isSecret(option.getKey())) {
        hide(option.getValue());
      }
    }
  }

  void say(String word, String text) {
    synchronized (out) {
      out.println("TMS_" + word + " " + line(text));
      out.flush();
    }
  }

  /** One bounded line without secrets and control characters. */
  String line(String text) {
    String clean = String.valueOf(text);
    for (Pattern secret : patterns) {
      clean = secret.matcher(clean).replaceAll("***");
    }
    StringBuilder line = new StringBuilder(Math.min(clean.length(), LINE_CHARS_MAX));
    for (int i = 0; i < clean.length() && line.length() < LINE_CHARS_MAX; i++) {
      char c = clean.charAt(i);
      line.append(c < 0x20 || c == 0x7f ? ' ' : c);
    }
    return line.toString();
  }

  /** The chain of causes, outermost first, each as `class: first line`. */
  List<String> chain(Throwable error) {
    List<String> lines = new ArrayList<>();
    Set<Throwable> seen = Collections.newSetFromMap(new IdentityHashMap<>());
    for (Throwable t = error; t != null && seen.add(t) && lines.size() < CAUSES_MAX; t = t.getCause()) {
      String message = t.getMessage();
      String first = message == null ? "" : ": " + message.trim().split("\\R", 2)[0];
      lines.add(line(t.getClass().getName() + first));
    }
    return lines;
  }
}
