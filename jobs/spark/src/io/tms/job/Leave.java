package io.tms.job;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Collections;
import java.util.Iterator;
import java.util.Map;
import java.util.TreeMap;

/** The work as leave names it. Reading it touches nothing, so whatever is wrong here ends the job untouched. */
final class Leave {
  enum Action { COMPACTION, CLUSTERING, CLEAN }

  /** What the timeline must show right before the call. */
  enum Expected { REQUESTED, INFLIGHT_OF_OURS, NONE }

  /** Own time limit when the answer names none: a job must not run for ever. Seconds. */
  private static final long RUN_TIMEOUT_SECS = 24 * 3600;
  private static final long RUN_TIMEOUT_SECS_MAX = 366L * 24 * 3600;
  private static final long PROGRESS_EVERY_SECS = 10;
  private static final long PROGRESS_EVERY_SECS_MAX = 3600;
  /** Most settings that one leave may carry. */
  private static final int SETTINGS_MAX = 2000;
  private static final String OPTION_KEY = "hoodie\\.[A-Za-z0-9._-]{1,200}";
  private static final String SESSION_KEY = "(hoodie|spark\\.sql|spark\\.hoodie)\\.[A-Za-z0-9._-]{1,200}";

  /**
   * Tries for the table lock, 5 s apart by default: longer than any sensible expiry of a lock. A call that gives up
   * waiting deletes the lock file of whoever holds it (measured on all three releases); the own time limit and `stop`
   * end a waiting job without that.
   */
  private static final String LOCK_TRIES = "1000";
  /** Keys that a procedure would override if only the session had them. */
  private static final String CALL_MUST_NAME = "hoodie\\.write\\.lock\\.provider|hoodie\\.clean(er)?\\..*";

  final Action action;
  final String basePath;
  /** Null for a clean that has no plan yet. */
  final String instant;
  final Expected expected;
  final Map<String, String> options;
  final Map<String, String> session;
  final long runTimeoutSecs;
  final long progressEverySecs;

  /** The job cannot do what leave says; the message names keys, never values. */
  static final class BadLeaveException extends Exception {
    private static final long serialVersionUID = 1L;

    BadLeaveException(String message) {
      super(message);
    }
  }

  Leave(JsonNode answer) throws BadLeaveException {
    action = action(answer.path("action").asText(""));
    basePath = answer.path("base_path").asText("");
    JsonNode named = answer.path("instant");
    instant = named.isTextual() ? named.asText() : null;
    expected = expected(answer.path("expected").asText(""));
    options = settings(answer.path("options"), "options", OPTION_KEY);
    session = settings(answer.path("session"), "session", SESSION_KEY);
    runTimeoutSecs = seconds(answer.path("run_timeout_secs"), RUN_TIMEOUT_SECS, RUN_TIMEOUT_SECS_MAX);
    progressEverySecs = seconds(answer.path("progress_every_secs"), PROGRESS_EVERY_SECS, PROGRESS_EVERY_SECS_MAX);
    if (basePath.isEmpty()) {
      throw new BadLeaveException("leave names no base_path");
    }
    if (!named.isMissingNode() && !named.isNull() && !SqlText.isInstant(instant)) {
      throw new BadLeaveException("instant is not a number of 14 to 18 digits");
    }
    if (action != Action.CLEAN && instant == null) {
      throw new BadLeaveException("compaction and clustering need an instant: without one every pending plan would run");
    }
    if ((expected == Expected.NONE) != (instant == null)) {
      throw new BadLeaveException("expected does not fit the instant");
    }
    refuseWhatTheCallMustNameButCannot();
  }

  /** Whether this is the same work: the second leave must not turn the job into another one. */
  boolean isSameWork(Leave other) {
    return action == other.action && basePath.equals(other.basePath)
        && (instant == null ? other.instant == null : instant.equals(other.instant));
  }

  /** All that goes to the Spark session, options over session, with what every job must carry. */
  Map<String, String> settings() {
    Map<String, String> all = new TreeMap<>();
    // A delegated table's own configuration would make the job refuse to run; the embedded server leaks sockets
    // (both measured).
    all.put("hoodie.table.service.manager.enabled", "false");
    all.put("hoodie.embed.timeline.server", "false");
    all.putAll(session);
    all.putAll(options);
    if (all.containsKey("hoodie.write.lock.provider")) {
      all.putIfAbsent("hoodie.write.lock.client.num_retries", LOCK_TRIES);
    }
    return all;
  }

  String actionName() {
    return action.name().toLowerCase(java.util.Locale.ROOT);
  }

  /**
   * The settings that the call names as well: what a procedure sets itself wins over the session, but not over its
   * `options`. On 0.15.0 run_compaction and run_clustering put a lock file of their own, which no writer knows, over a
   * provider that only the session has (measured). Secrets stay out: the text of a statement shows in Spark's events.
   */
  Map<String, String> callOptions() {
    Map<String, String> named = new TreeMap<>();
    for (Map.Entry<String, String> setting : settings().entrySet()) {
      boolean isForHudi = setting.getKey().startsWith("hoodie.");
      if (isForHudi && !Report.isSecret(setting.getKey()) && SqlText.passesByOptions(setting.getValue())) {
        named.put(setting.getKey(), setting.getValue());
      }
    }
    return named;
  }

  private void refuseWhatTheCallMustNameButCannot() throws BadLeaveException {
    for (Map.Entry<String, String> setting : settings().entrySet()) {
      String key = setting.getKey();
      if (key.matches(CALL_MUST_NAME) && !SqlText.passesByOptions(setting.getValue())) {
        throw new BadLeaveException("the value could not be passed whole: " + key);
      }
    }
  }

  private static Action action(String word) throws BadLeaveException {
    switch (word) {
      case "compaction": return Action.COMPACTION;
      case "clustering": return Action.CLUSTERING;
      case "clean": return Action.CLEAN;
      default: throw new BadLeaveException("this job does not know the action that leave names");
    }
  }

  private static Expected expected(String word) throws BadLeaveException {
    switch (word) {
      case "requested": return Expected.REQUESTED;
      case "inflight_of_ours": return Expected.INFLIGHT_OF_OURS;
      case "none": return Expected.NONE;
      default: throw new BadLeaveException("this job does not know the expected state that leave names");
    }
  }

  private static long seconds(JsonNode node, long unset, long max) throws BadLeaveException {
    if (node.isMissingNode() || node.isNull()) {
      return unset;
    }
    if (!node.canConvertToLong() || node.asLong() < 1 || node.asLong() > max) {
      throw new BadLeaveException("a number of seconds in leave is not from 1 to " + max);
    }
    return node.asLong();
  }

  private static Map<String, String> settings(JsonNode node, String where, String keys) throws BadLeaveException {
    if (node.isMissingNode() || node.isNull()) {
      return Collections.emptyMap();
    }
    if (!node.isObject() || node.size() > SETTINGS_MAX) {
      throw new BadLeaveException(where + " is not an object of at most " + SETTINGS_MAX + " settings");
    }
    Map<String, String> settings = new TreeMap<>();
    for (Iterator<Map.Entry<String, JsonNode>> it = node.fields(); it.hasNext(); ) {
      Map.Entry<String, JsonNode> field = it.next();
      if (!field.getKey().matches(keys)) {
        throw new BadLeaveException(where + " holds a key that may not be set: " + field.getKey());
      }
      if (!field.getValue().isTextual()) {
        throw new BadLeaveException(where + " must hold texts only: " + field.getKey());
      }
      settings.put(field.getKey(), field.getValue().asText());
    }
    return settings;
  }
}
