package io.tms.job;

import java.io.IOException;
import java.io.InputStream;
import java.lang.management.ManagementFactory;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.attribute.PosixFilePermission;
import java.security.SecureRandom;
import java.util.Map;
import java.util.Properties;
import java.util.Set;

/**
 * Who this job is and where it asks: address, tag and token, from the environment or a private file, and the run id
 * that it gives itself. Nothing about the work is known here; that comes with leave.
 */
final class JobIdentity {
  /** Longest file that is read as `--properties`, in bytes. */
  private static final long FILE_BYTES_MAX = 64 * 1024;
  /** Default of TMS_JOB_LEAVE_WAIT_SECS: how long one ask may wait for somebody to answer. */
  private static final int LEAVE_WAIT_SECS = 120;
  private static final int LEAVE_WAIT_SECS_MAX = 24 * 3600;

  final String url;
  final String tag;
  final String token;
  final String runId;
  final int leaveWaitSecs;

  private JobIdentity(String url, String tag, String token, int leaveWaitSecs) {
    this.url = url;
    this.tag = tag;
    this.token = token;
    this.leaveWaitSecs = leaveWaitSecs;
    this.runId = randomId();
  }

  /** What is wrong with the arguments or the environment; the message holds no value of a secret. */
  static final class UsageException extends Exception {
    private static final long serialVersionUID = 1L;

    UsageException(String message) {
      super(message);
    }
  }

  static JobIdentity read(String[] argv, Map<String, String> env) throws UsageException {
    String url = env.get("TMS_JOB_URL");
    String tag = env.get("TMS_JOB_TAG");
    String token = env.get("TMS_JOB_TOKEN");
    if (argv.length == 2 && argv[0].equals("--properties")) {
      if (blank(url) || blank(tag) || blank(token)) {
        Properties file = load(Paths.get(argv[1]));
        url = file.getProperty("url");
        tag = file.getProperty("tag");
        token = file.getProperty("token");
      }
    } else if (argv.length != 0) {
      throw new UsageException("the only argument is --properties FILE");
    }
    if (blank(url) || !url.matches("https?://[^\\s/?#@]+(/[^\\s?#]*)?") || !isAddress(url)) {
      throw new UsageException("TMS_JOB_URL (or url in the file) must be an http or https address without a query");
    }
    if (blank(tag) || !tag.matches("[a-z][a-z0-9-]{0,126}[a-z0-9]")) {
      throw new UsageException("TMS_JOB_TAG (or tag in the file) must be 2 to 128 of a-z, 0-9 and -");
    }
    if (blank(token) || !token.matches("[\\x21-\\x7e]{1,4096}")) {
      throw new UsageException("TMS_JOB_TOKEN (or token in the file) must be printable and without blanks");
    }
    return new JobIdentity(url.replaceAll("/+$", ""), tag, token, leaveWait(env.get("TMS_JOB_LEAVE_WAIT_SECS")));
  }

  private static boolean isAddress(String url) {
    try {
      URI address = new URI(url);
      return address.getHost() != null && address.getPort() <= 65535;
    } catch (URISyntaxException e) {
      return false;
    }
  }

  private static int leaveWait(String text) throws UsageException {
    if (blank(text)) {
      return LEAVE_WAIT_SECS;
    }
    try {
      int secs = Integer.parseInt(text);
      if (secs >= 0 && secs <= LEAVE_WAIT_SECS_MAX) {
        return secs;
      }
    } catch (NumberFormatException e) {
      // Falls to the message below, which names the range.
    }
    throw new UsageException("TMS_JOB_LEAVE_WAIT_SECS must be a number of seconds from 0 to " + LEAVE_WAIT_SECS_MAX);
  }

  /** The file holds the token, so one that others can read is refused: the token must be taken for known. */
  private static Properties load(Path path) throws UsageException {
    try {
      Set<PosixFilePermission> modes = Files.getPosixFilePermissions(path);
      for (PosixFilePermission mode : modes) {
        if (!mode.name().startsWith("OWNER_")) {
          throw new UsageException("the properties file must be readable by its owner only (mode 0600)");
        }
      }
      if (Files.size(path) > FILE_BYTES_MAX) {
        throw new UsageException("the properties file is longer than " + FILE_BYTES_MAX + " bytes");
      }
      Properties properties = new Properties();
      try (InputStream in = Files.newInputStream(path)) {
        properties.load(in);
      }
      return properties;
    } catch (IOException | UnsupportedOperationException | IllegalArgumentException e) {
      throw new UsageException("the properties file cannot be read: " + e.getClass().getSimpleName());
    }
  }

  private static boolean blank(String text) {
    return text == null || text.trim().isEmpty();
  }

  private static String randomId() {
    byte[] bytes = new byte[16];
    new SecureRandom().nextBytes(bytes);
    StringBuilder out = new StringBuilder(32);
    for (byte b : bytes) {
      out.append(String.format("%02x", b));
    }
    return out.toString();
  }

  /** Name of the JVM as `pid@host`, which is how Java 8 tells both. */
  private static String jvmName() {
    return ManagementFactory.getRuntimeMXBean().getName();
  }

  static long pid() {
    try {
      return Long.parseLong(jvmName().split("@", 2)[0]);
    } catch (NumberFormatException e) {
      return -1;
    }
  }

  static String host() {
    String[] parts = jvmName().split("@", 2);
    return parts.length == 2 ? parts[1] : "unknown";
  }
}
