package io.tms.job;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;

/**
 * Executes one Hudi table service through the SQL procedures of whatever Hudi Spark bundle is on the class path, and
 * only while TMS gives leave. It has no compile-time dependency on Hudi: one jar serves 0.15, 1.0 and 1.2.
 *
 * <p>The protocol (docs/dev/job-protocol.md is the same text at length):
 * <ul>
 * <li>TMS_JOB_URL, TMS_JOB_TAG and TMS_JOB_TOKEN in the environment, or `--properties FILE` of mode 0600 with the keys
 * url, tag, token. TMS_JOB_LEAVE_WAIT_SECS (120) limits one wait for an answer.
 * <li>`POST {url}/v1/job/{tag}/leave` with a bearer token: at the start, before a SparkSession is opened, and again
 * right before the call, with the same random run id. `leave: true` brings the work and its settings; `leave: false`
 * and 4xx end the job untouched.
 * <li>The job lists the timeline itself right before the call and ends untouched when the instant is not in the state
 * that leave named.
 * <li>`POST …/progress` every `progress_every_secs`; the answer may be `stop`. `POST …/end` once, best effort.
 * </ul>
 * Exit codes: {@link ExitCode}. Outcomes: returned, threw, untouched, stopped, timed_out.
 */
public final class TmsSparkJob {
  private static final int ROWS_MAX = 20;
  /** Longest wait of the heartbeat thread between two looks at the phase. */
  private static final long BEAT_TICK_MS = 200;

  private final JobIdentity me;
  private final Report report;
  private final LeaveClient tms;
  private final StopControl stop;
  private final AtomicBoolean ended = new AtomicBoolean();
  private volatile boolean hasLeave;
  private volatile String phase = "starting";
  private volatile CallWatch watch;
  private volatile String appId = "";
  private SparkSession spark;

  private TmsSparkJob(JobIdentity me, Report report) {
    this.me = me;
    this.report = report;
    this.tms = new LeaveClient(me);
    this.stop = new StopControl(report, this::lastWords);
  }

  public static void main(String[] argv) {
    Report report = new Report(System.out);
    JobIdentity me;
    try {
      me = JobIdentity.read(argv, System.getenv());
    } catch (JobIdentity.UsageException e) {
      report.say("RESULT", "untouched exit=" + ExitCode.USAGE);
      report.say("CAUSE", e.getMessage());
      System.exit(ExitCode.USAGE);
      return;
    }
    report.hide(me.token);
    TmsSparkJob job = new TmsSparkJob(me, report);
    job.stop.start();
    int code = job.run();
    if (job.spark != null) {
      try {
        job.spark.stop();
      } catch (RuntimeException e) {
        report.say("JOB", "spark did not stop cleanly: " + e.getClass().getName());
      }
    }
    System.exit(code);
  }

  /** The whole job; the exit code. */
  private int run() {
    try {
      Leave first = ask("start", null);
      report.hideSecretsOf(first.settings());
      stop.limit(first.runTimeoutSecs);
      report.say("JOB", "tag=" + me.tag + " run=" + me.runId + " stage=start action=" + first.actionName()
          + " instant=" + first.instant + " settings=" + String.join(",", first.settings().keySet()));
      startBeat(first.progressEverySecs);
      openSpark();
      Leave leave = ask("call", spark.version());
      report.hideSecretsOf(leave.settings());
      report.say("JOB", "tag=" + me.tag + " stage=call action=" + leave.actionName() + " instant=" + leave.instant
          + " settings=" + String.join(",", leave.settings().keySet()));
      if (!leave.isSameWork(first)) {
        return end("untouched", ExitCode.NO_LEAVE, one("the second leave names other work than the first"));
      }
      applySettings(leave);
      phase = "checking";
      return callIfStillDue(leave);
    } catch (LeaveClient.NoLeaveException e) {
      return end("untouched", ExitCode.NO_LEAVE, one("no leave: " + e.getMessage()));
    } catch (LeaveClient.NobodyAnsweredException e) {
      return end("untouched", ExitCode.NOBODY_ANSWERED, one("nobody answered: " + e.getMessage()));
    } catch (Leave.BadLeaveException e) {
      return end("untouched", ExitCode.USAGE, one("refused: " + e.getMessage()));
    } catch (LeaveClient.StoppedException e) {
      return endStopped(Collections.emptyList());
    } catch (Throwable e) {
      return end("threw", ExitCode.THREW, untouched("the job failed before the call", e));
    }
  }

  private Leave ask(String stage, String sparkVersion) throws LeaveClient.NoLeaveException,
      LeaveClient.NobodyAnsweredException, LeaveClient.StoppedException, Leave.BadLeaveException {
    JsonNode given = tms.leave(stage, sparkVersion, stop::isAsked);
    // From here on TMS waits for this run's end, also when its answer turns out to be unusable.
    hasLeave = true;
    Leave leave = new Leave(given);
    if (stop.isAsked()) {
      throw new LeaveClient.StoppedException();
    }
    return leave;
  }

  private void openSpark() {
    spark = SparkSession.builder()
        .appName(me.tag)
        .config("spark.serializer", "org.apache.spark.serializer.KryoSerializer")
        .config("spark.kryo.registrator", "org.apache.spark.HoodieSparkKryoRegistrar")
        .config("spark.sql.extensions", "org.apache.spark.sql.hudi.HoodieSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.hudi.catalog.HoodieCatalog")
        // The name of a clean's table is for this JVM; it has no business in a shared metastore.
        .config("spark.sql.catalogImplementation", "in-memory")
        .getOrCreate();
    SparkContext sc = spark.sparkContext();
    appId = sc.applicationId();
    // Hudi logs its configuration, values included, at INFO.
    sc.setLogLevel("WARN");
    watch = new CallWatch(sc);
    sc.addSparkListener(watch);
    // The first statement of a session costs seconds; they belong before the second ask, not after it.
    spark.sql("select 1").collectAsList();
    report.say("JOB", "spark=" + spark.version() + " app=" + appId);
  }

  /** All settings go to the session, where any value passes whole; the call names some of them again. */
  private void applySettings(Leave leave) throws Leave.BadLeaveException {
    for (Map.Entry<String, String> setting : leave.settings().entrySet()) {
      try {
        spark.conf().set(setting.getKey(), setting.getValue());
      } catch (RuntimeException e) {
        throw new Leave.BadLeaveException("this Spark does not take the setting " + setting.getKey());
      }
    }
    spark.conf().set("spark.sql.variable.substitute", "false");
    spark.conf().set("spark.sql.parser.escapedStringLiterals", "false");
  }

  private int callIfStillDue(Leave leave) {
    String mismatch;
    try {
      mismatch = TimelineCheck.mismatch(spark.sessionState().newHadoopConf(), leave);
    } catch (Exception e) {
      return end("threw", ExitCode.THREW, untouched("the timeline could not be read" + localeHint(leave), e));
    }
    if (mismatch != null) {
      return end("untouched", ExitCode.NOTHING_TO_DO, one(mismatch));
    }
    if (!stop.beginCall(watch)) {
      return endStopped(Collections.emptyList());
    }
    phase = "running";
    long start = System.nanoTime();
    List<String> rows = new ArrayList<>();
    Throwable thrown = null;
    try {
      call(leave, rows);
    } catch (Throwable e) {
      thrown = e;
    } finally {
      stop.endCall();
    }
    phase = "ending";
    report.say("JOB", "call ended after_ms=" + TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start));
    if (thrown == null) {
      return end("returned", ExitCode.RETURNED, rows, Collections.emptyList());
    }
    List<String> chain = report.chain(thrown);
    return stop.isAsked() ? endStopped(chain) : end("threw", ExitCode.THREW, chain);
  }

  /** A JVM in another locale turns what is not ASCII in a local path into question marks. */
  private static String localeHint(Leave leave) {
    boolean isAscii = leave.basePath.chars().allMatch(c -> c < 0x80);
    boolean isUtf8 = "UTF-8".equalsIgnoreCase(System.getProperty("sun.jnu.encoding", "UTF-8"));
    return isAscii || isUtf8 ? "" : " (this JVM's locale is not UTF-8, start jobs with LC_ALL=C.UTF-8)";
  }

  private void call(Leave leave, List<String> rows) throws ReflectiveOperationException {
    spark.sparkContext().setJobGroup(me.tag, me.tag, false);
    List<Row> answer;
    switch (leave.action) {
      case COMPACTION:
        answer = sql(SqlText.compaction(leave.basePath, leave.instant, leave.callOptions()));
        break;
      case CLUSTERING:
        answer = sql(SqlText.clustering(leave.basePath, leave.instant, leave.callOptions()));
        break;
      default:
        answer = CleanCall.run(spark, me.tag, leave);
        break;
    }
    for (Row row : answer.subList(0, Math.min(answer.size(), ROWS_MAX))) {
      String line = report.line(row.mkString("|"));
      rows.add(line);
      report.say("ROW", line);
    }
  }

  private List<Row> sql(String statement) {
    return spark.sql(statement).collectAsList();
  }

  /** Heartbeats, on a thread of their own: an answer that comes late must not hold the call. */
  private void startBeat(long everySecs) {
    Thread thread = new Thread(() -> {
      long next = System.nanoTime();
      while (!ended.get()) {
        CallWatch counts = watch;
        boolean told = tms.progress(phase, counts == null ? 0 : counts.tasksDone(),
            counts == null ? 0 : counts.tasksTotal(), counts == null ? 0 : counts.percent());
        if (told && !ended.get()) {
          stop.ask(StopControl.Why.TOLD);
        }
        next += TimeUnit.SECONDS.toNanos(everySecs);
        while (!ended.get() && next - System.nanoTime() > 0) {
          try {
            Thread.sleep(BEAT_TICK_MS);
          } catch (InterruptedException e) {
            return;
          }
        }
        next = Math.max(next, System.nanoTime());
      }
    }, "tms-beat");
    thread.setDaemon(true);
    thread.start();
  }

  /** The end of a job that was told to stop, timed out or got SIGTERM, before or in the call. */
  private int endStopped(List<String> chain) {
    StopControl.Why why = stop.why();
    if (!stop.wasCalled()) {
      String outcome = why == StopControl.Why.TIME_LIMIT ? "timed_out" : "untouched";
      return end(outcome, StopControl.untouchedCode(why), one("stopped before the call: nothing was touched"));
    }
    return end(outcomeOf(why), StopControl.stoppedCode(why), chain);
  }

  /** Said by the watchdog for a main thread that did not come back in time. */
  private void lastWords(int code) {
    StopControl.Why why = stop.why();
    if (!stop.wasCalled()) {
      end(why == StopControl.Why.TIME_LIMIT ? "timed_out" : "untouched", code, one("stopped before the call"));
    } else {
      end(outcomeOf(why), code, one("the call did not unwind in time; a table lock may be left, it expires"));
    }
  }

  private static String outcomeOf(StopControl.Why why) {
    return why == StopControl.Why.TIME_LIMIT ? "timed_out" : "stopped";
  }

  private List<String> untouched(String what, Throwable error) {
    List<String> lines = new ArrayList<>(one(what + "; nothing was touched"));
    lines.addAll(report.chain(error));
    return lines;
  }

  private List<String> one(String line) {
    return Collections.singletonList(report.line(line));
  }

  private int end(String outcome, int code, List<String> errors) {
    return end(outcome, code, Collections.emptyList(), errors);
  }

  /** Says the end once, on stdout and to TMS. Only the holder of leave tells TMS: the others have no end to report. */
  private int end(String outcome, int code, List<String> rows, List<String> errors) {
    if (!ended.compareAndSet(false, true)) {
      return code;
    }
    stop.closing(code);
    report.say("RESULT", String.format(Locale.ROOT, "%s exit=%d rows=%d", outcome, code, rows.size()));
    for (String error : errors) {
      report.say("CAUSE", error);
    }
    if (hasLeave && !tms.end(outcome, code, rows, errors, appId)) {
      report.say("JOB", "the end was not taken by TMS");
    }
    return code;
  }
}
