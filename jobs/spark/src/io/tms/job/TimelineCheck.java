package io.tms.job;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;

/**
 * The job's own look at the timeline, right before the call: is the instant in the state that leave named? It only
 * lists and reads. It takes Hudi's file names from the layout, not from Hudi's classes, so it is the same for every
 * release; names were measured on 0.15.0, 1.0.2 and 1.2.0.
 */
final class TimelineCheck {
  /** Most entries of an active timeline that are looked at; real ones hold some hundreds. */
  private static final int ENTRIES_MAX = 1_000_000;
  private static final long PROPERTIES_BYTES_MAX = 1024 * 1024;
  /** A writer that replaces the properties is done within this many looks of {@link #PAUSE_MS}. */
  private static final int PROPERTIES_TRIES = 5;
  private static final long PAUSE_MS = 400;

  private final FileSystem fs;
  private final Path meta;
  private final Leave leave;

  /** What the files of one instant and action say. */
  private static final class Seen {
    boolean requested;
    boolean inflight;
    boolean completed;
  }

  private TimelineCheck(FileSystem fs, Path meta, Leave leave) {
    this.fs = fs;
    this.meta = meta;
    this.leave = leave;
  }

  /**
   * Why the call must not be made, or null when the timeline is as leave said.
   *
   * @throws IOException when the timeline cannot be read, which is no reason to believe anything
   */
  static String mismatch(Configuration conf, Leave leave) throws IOException {
    try {
      Path base = new Path(leave.basePath);
      return new TimelineCheck(base.getFileSystem(conf), new Path(base, ".hoodie"), leave).mismatch();
    } catch (RuntimeException e) {
      throw new IOException("the timeline cannot be read", e);
    }
  }

  private String mismatch() throws IOException {
    Properties table = properties();
    String version = table.getProperty("hoodie.table.version", "");
    String pinned = leave.settings().get("hoodie.write.table.version");
    if (pinned != null && !pinned.equals(version)) {
      return "the table's version is " + version + ", leave was given for " + pinned;
    }
    boolean second = isSecondLayout(table, version);
    Map<String, Seen> seen = look(timelineFolder(table, second), pendingWord(second), completedWord());
    return leave.action == Leave.Action.CLEAN ? cleanMismatch(seen) : planMismatch(seen.get(leave.instant));
  }

  private String planMismatch(Seen instant) {
    if (instant == null || (!instant.requested && !instant.completed)) {
      return "the instant has no plan on the active timeline";
    }
    if (instant.completed) {
      return "the instant is completed";
    }
    if (instant.inflight && leave.expected == Leave.Expected.REQUESTED) {
      return "the instant is inflight, leave was given for a requested one: somebody else runs it or died on it";
    }
    return null;
  }

  /** `run_clean` executes every pending clean, so one that leave does not name must stop it. */
  private String cleanMismatch(Map<String, Seen> seen) {
    for (Map.Entry<String, Seen> clean : seen.entrySet()) {
      boolean isPending = !clean.getValue().completed;
      if (isPending && !clean.getKey().equals(leave.instant)) {
        return "a clean that leave does not name is pending: " + clean.getKey();
      }
    }
    return leave.instant == null ? null : planMismatch(seen.get(leave.instant));
  }

  private Map<String, Seen> look(Path folder, String pendingWord, String completedWord) throws IOException {
    Map<String, Seen> found = new TreeMap<>();
    RemoteIterator<FileStatus> entries = fs.listStatusIterator(folder);
    for (int n = 0; entries.hasNext(); n++) {
      if (n >= ENTRIES_MAX) {
        throw new IOException("the timeline holds more than " + ENTRIES_MAX + " entries");
      }
      FileStatus entry = entries.next();
      if (!entry.isFile()) {
        continue;
      }
      String name = entry.getPath().getName();
      int dot = name.indexOf('.');
      if (dot <= 0) {
        continue;
      }
      String times = name.substring(0, dot);
      String rest = name.substring(dot + 1);
      String instant = times.split("_", 2)[0];
      boolean isOfInterest = leave.action == Leave.Action.CLEAN || instant.equals(leave.instant);
      if (!isOfInterest || !times.matches("[0-9]+(_[0-9]+)?")) {
        continue;
      }
      if (rest.equals(completedWord)) {
        found.computeIfAbsent(instant, k -> new Seen()).completed = true;
      } else if (rest.equals(pendingWord + ".requested")) {
        found.computeIfAbsent(instant, k -> new Seen()).requested = true;
      } else if (rest.equals(pendingWord + ".inflight")) {
        found.computeIfAbsent(instant, k -> new Seen()).inflight = true;
      }
    }
    return found;
  }

  private String pendingWord(boolean second) {
    if (leave.action == Leave.Action.CLUSTERING) {
      return second ? "clustering" : "replacecommit";
    }
    return leave.actionName();
  }

  private String completedWord() {
    switch (leave.action) {
      case COMPACTION: return "commit";
      case CLUSTERING: return "replacecommit";
      default: return "clean";
    }
  }

  private static boolean isSecondLayout(Properties table, String version) throws IOException {
    String layout = table.getProperty("hoodie.timeline.layout.version", "");
    if (layout.equals("1") || layout.equals("2")) {
      return layout.equals("2");
    }
    throw new IOException("hoodie.properties names no known timeline layout (table version " + version + ")");
  }

  private Path timelineFolder(Properties table, boolean second) throws IOException {
    if (!second) {
      return meta;
    }
    String folder = table.getProperty("hoodie.timeline.path", "timeline").trim();
    // Input from outside: it must stay below the table.
    if (!folder.matches("[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")) {
      throw new IOException("hoodie.timeline.path leads out of the table");
    }
    return new Path(meta, folder);
  }

  /** A writer may be replacing the file, so the backup and a second look belong to reading it. */
  private Properties properties() throws IOException {
    IOException last = null;
    for (int attempt = 0; attempt < PROPERTIES_TRIES; attempt++) {
      for (String name : new String[] {"hoodie.properties", "hoodie.properties.backup"}) {
        try {
          Properties read = properties(new Path(meta, name));
          if (read.containsKey("hoodie.table.name") && read.containsKey("hoodie.table.version")
              && read.containsKey("hoodie.timeline.layout.version")) {
            return read;
          }
          last = new IOException(name + " lacks the table's name, version or timeline layout");
        } catch (FileNotFoundException e) {
          last = last == null ? e : last;
        }
      }
      try {
        Thread.sleep(PAUSE_MS);
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        throw new IOException("interrupted while reading hoodie.properties", e);
      }
    }
    throw last;
  }

  private Properties properties(Path path) throws IOException {
    if (fs.getFileStatus(path).getLen() > PROPERTIES_BYTES_MAX) {
      throw new IOException(path.getName() + " is longer than " + PROPERTIES_BYTES_MAX + " bytes");
    }
    Properties read = new Properties();
    try (InputStream in = fs.open(path)) {
      read.load(in);
    }
    return read;
  }
}
