package io.tms.job;

import java.util.HashSet;
import java.util.Set;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerJobEnd;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.StageInfo;
import scala.collection.JavaConverters;

/**
 * Follows the Spark jobs of the call: counts for progress, and the cancel that also reaches jobs that have not started
 * yet. Every job of this application belongs to the call, so no tag is needed to tell them apart.
 */
final class CallWatch extends SparkListener {
  /** Share of the whole that the jobs writing the data take; measured 75 to 90 % for compaction and clustering. */
  private static final int DATA_FROM = 2;
  private static final int DATA_SPAN = 83;
  private static final int AFTER_EACH = 3;
  /** 100 is for the timeline to say. */
  private static final int PERCENT_MAX = 99;

  /** Clustering samples its records in jobs of the same words first, so the tasks of those say little. */
  private static final int CLUSTERING_MAX = 50;
  private static final String COMPACTION_WORDS = "Preparing compaction metadata";
  private static final String CLUSTERING_WORDS = "Clustering records for";

  private final SparkContext sc;
  private final Set<Integer> dataJobs = new HashSet<>();
  private final Set<Integer> dataStages = new HashSet<>();
  private volatile boolean cancelled;
  private int dataMax = DATA_FROM + DATA_SPAN;
  private int dataTasks;
  private int dataDone;
  private int afterData;
  private int tasksTotal;
  private int tasksDone;
  private int percent;

  CallWatch(SparkContext sc) {
    this.sc = sc;
  }

  /**
   * Cancels what runs and whatever starts later: right after `.inflight` nothing runs, and a cancel of the running jobs
   * alone would miss (measured). Not by job group: 0.15.0 sets groups of its own.
   */
  void cancel() {
    cancelled = true;
    sc.cancelAllJobs();
  }

  @Override
  public void onJobStart(SparkListenerJobStart job) {
    if (cancelled) {
      sc.cancelJob(job.jobId());
    }
    String words = job.properties() == null ? "" : job.properties().getProperty("spark.job.description", "");
    boolean isClustering = words.contains(CLUSTERING_WORDS);
    if (!isClustering && !words.contains(COMPACTION_WORDS)) {
      return;
    }
    synchronized (this) {
      dataMax = isClustering ? CLUSTERING_MAX : dataMax;
      dataJobs.add(job.jobId());
      for (StageInfo stage : JavaConverters.seqAsJavaListConverter(job.stageInfos()).asJava()) {
        if (dataStages.add(stage.stageId())) {
          dataTasks += stage.numTasks();
        }
      }
    }
  }

  @Override
  public synchronized void onJobEnd(SparkListenerJobEnd job) {
    if (!dataJobs.isEmpty() && !dataJobs.contains(job.jobId())) {
      afterData++;
    }
  }

  @Override
  public synchronized void onStageSubmitted(SparkListenerStageSubmitted stage) {
    tasksTotal += stage.stageInfo().numTasks();
  }

  @Override
  public synchronized void onTaskEnd(SparkListenerTaskEnd task) {
    if (!task.taskInfo().successful()) {
      return;
    }
    tasksDone++;
    if (dataStages.contains(task.stageId())) {
      dataDone++;
    }
  }

  synchronized int tasksDone() {
    return tasksDone;
  }

  synchronized int tasksTotal() {
    return Math.max(tasksTotal, tasksDone);
  }

  /**
   * An estimate that never falls; 0 as long as no job was seen whose words, the same in 0.15.0, 1.0.2 and 1.2.0, say
   * that it writes data.
   */
  synchronized int percent() {
    int now = percent;
    if (afterData > 0) {
      now = DATA_FROM + DATA_SPAN + AFTER_EACH * afterData;
    } else if (dataTasks > 0) {
      now = Math.min(dataMax, DATA_FROM + DATA_SPAN * Math.min(dataDone, dataTasks) / dataTasks);
    }
    percent = Math.min(PERCENT_MAX, Math.max(percent, now));
    return percent;
  }
}
