package io.tms.job;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.HttpURLConnection;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;

/** The job's side of the three routes under `/v1/job/{tag}`. It knows no Spark and takes no decision about the table. */
final class LeaveClient {
  private static final int CONNECT_MS = 5_000;
  private static final int READ_MS = 30_000;
  /** A heartbeat that waits longer would only delay the next one. */
  private static final int PROGRESS_READ_MS = 10_000;
  private static final int END_TRIES = 4;
  private static final int END_READ_MS = 5_000;
  /** An answer with settings of a few thousand keys fits; anything longer is not ours. */
  private static final int ANSWER_BYTES_MAX = 4 * 1024 * 1024;
  private static final long BACKOFF_FIRST_MS = 250;
  private static final long BACKOFF_MAX_MS = 8_000;

  private final JobIdentity me;
  private final ObjectMapper json =
      new ObjectMapper().configure(JsonParser.Feature.STRICT_DUPLICATE_DETECTION, true);

  LeaveClient(JobIdentity me) {
    this.me = me;
  }

  /** TMS said that this run may not touch the table. */
  static final class NoLeaveException extends Exception {
    private static final long serialVersionUID = 1L;

    NoLeaveException(String message) {
      super(message);
    }
  }

  /** Nobody gave an answer that can be understood, within the limit. */
  static final class NobodyAnsweredException extends Exception {
    private static final long serialVersionUID = 1L;

    NobodyAnsweredException(String message) {
      super(message);
    }
  }

  /** The job was told to stop while it waited for an answer. */
  static final class StoppedException extends Exception {
    private static final long serialVersionUID = 1L;
  }

  /**
   * Asks for leave until somebody answers. A refusal is final. What is no answer (refused connection, time-out, 3xx,
   * 408, 429, 5xx, a body that is not ours) is asked again with back-off until the limit of the environment.
   */
  JsonNode leave(String stage, String sparkVersion, BooleanSupplier stopped)
      throws NoLeaveException, NobodyAnsweredException, StoppedException {
    ObjectNode body = json.createObjectNode();
    body.put("run_id", me.runId).put("stage", stage).put("host", JobIdentity.host());
    if (JobIdentity.pid() > 0) {
      body.put("pid", JobIdentity.pid());
    }
    if (sparkVersion != null) {
      body.put("spark_version", sparkVersion);
    }
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(me.leaveWaitSecs);
    long pauseMs = BACKOFF_FIRST_MS;
    while (true) {
      String last;
      try {
        Answer answer = post("leave", body, READ_MS);
        if (answer.status == 200 && answer.body != null && answer.body.path("leave").isBoolean()) {
          if (answer.body.path("leave").asBoolean()) {
            return answer.body;
          }
          throw new NoLeaveException(answer.body.path("reason").asText("refused") + ": "
              + answer.body.path("detail").asText(""));
        }
        if (answer.status >= 400 && answer.status < 500 && answer.status != 408 && answer.status != 429) {
          throw new NoLeaveException("status " + answer.status);
        }
        last = answer.status == 200 ? "an answer that is not TMS's" : "status " + answer.status;
      } catch (IOException e) {
        last = e.getClass().getSimpleName();
      }
      long leftMs = TimeUnit.NANOSECONDS.toMillis(end - System.nanoTime());
      if (leftMs <= 0) {
        throw new NobodyAnsweredException("no answer within " + me.leaveWaitSecs + " s, last: " + last);
      }
      // Jitter, so that many jobs do not come back to a restarted server in one moment.
      pause(Math.min(leftMs, pauseMs / 2 + ThreadLocalRandom.current().nextLong(pauseMs)), stopped);
      pauseMs = Math.min(pauseMs * 2, BACKOFF_MAX_MS);
    }
  }

  private static void pause(long ms, BooleanSupplier stopped) throws StoppedException {
    long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(ms);
    for (long left = ms; left > 0; left = TimeUnit.NANOSECONDS.toMillis(end - System.nanoTime())) {
      if (stopped.getAsBoolean()) {
        throw new StoppedException();
      }
      try {
        Thread.sleep(Math.min(left, 100));
      } catch (InterruptedException e) {
        throw new StoppedException();
      }
    }
  }

  /** One heartbeat; whether TMS wants the job to stop. No answer means carry on. */
  boolean progress(String phase, int tasksDone, int tasksTotal, int percent) {
    ObjectNode body = json.createObjectNode();
    body.put("run_id", me.runId).put("phase", phase).put("tasks_done", tasksDone).put("tasks_total", tasksTotal)
        .put("percent", percent);
    try {
      Answer answer = post("progress", body, PROGRESS_READ_MS);
      return answer.status == 200 && answer.body != null && answer.body.path("stop").asBoolean(false);
    } catch (IOException e) {
      return false;
    }
  }

  /** Reports the end, best effort: the timeline is the verdict. Whether TMS took it. */
  boolean end(String outcome, int exitCode, List<String> rows, List<String> error, String appId) {
    ObjectNode body = json.createObjectNode();
    body.put("run_id", me.runId).put("outcome", outcome).put("exit_code", exitCode);
    rows.forEach(body.putArray("rows")::add);
    error.forEach(body.putArray("error")::add);
    body.put("app_id", appId);
    for (int attempt = 0; attempt < END_TRIES; attempt++) {
      try {
        int status = post("end", body, END_READ_MS).status;
        if (status < 500 && status != 429 && status != 408) {
          return status < 300;
        }
      } catch (IOException e) {
        // Tried again below: a server that restarts is away for a moment only.
      }
      try {
        Thread.sleep(BACKOFF_FIRST_MS << attempt);
      } catch (InterruptedException e) {
        // The end is more useful than the interrupt, which has nothing left to stop.
      }
    }
    return false;
  }

  private static final class Answer {
    final int status;
    final JsonNode body;

    Answer(int status, JsonNode body) {
      this.status = status;
      this.body = body;
    }
  }

  private Answer post(String route, ObjectNode body, int readMs) throws IOException {
    HttpURLConnection http = (HttpURLConnection) new URL(me.url + "/v1/job/" + me.tag + "/" + route).openConnection();
    try {
      http.setRequestMethod("POST");
      // A redirect would carry the token to an address that nobody configured.
      http.setInstanceFollowRedirects(false);
      http.setUseCaches(false);
      http.setConnectTimeout(CONNECT_MS);
      http.setReadTimeout(readMs);
      http.setRequestProperty("Authorization", "Bearer " + me.token);
      http.setRequestProperty("Content-Type", "application/json");
      http.setRequestProperty("Accept", "application/json");
      byte[] bytes = json.writeValueAsBytes(body);
      http.setDoOutput(true);
      http.setFixedLengthStreamingMode(bytes.length);
      try (OutputStream out = http.getOutputStream()) {
        out.write(bytes);
      }
      int status = http.getResponseCode();
      InputStream in = status >= 400 ? http.getErrorStream() : http.getInputStream();
      return new Answer(status, parse(in));
    } finally {
      http.disconnect();
    }
  }

  /** The body as JSON, or null when it is none: the status then speaks alone. */
  private JsonNode parse(InputStream in) throws IOException {
    if (in == null) {
      return null;
    }
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    byte[] buffer = new byte[8192];
    for (int n; (n = in.read(buffer)) > 0; ) {
      if (bytes.size() + n > ANSWER_BYTES_MAX) {
        return null;
      }
      bytes.write(buffer, 0, n);
    }
    try {
      return json.readTree(new String(bytes.toByteArray(), StandardCharsets.UTF_8));
    } catch (IOException e) {
      return null;
    }
  }
}
