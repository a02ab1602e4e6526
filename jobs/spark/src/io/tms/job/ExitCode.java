package io.tms.job;

/** Exit codes of the job. None of them is the verdict; the timeline is. */
final class ExitCode {
  static final int RETURNED = 0;
  /** Arguments, environment or the settings of leave are unusable; nothing was touched. */
  static final int USAGE = 2;
  /** The call threw, was stopped or timed out, Spark did not start, or the timeline could not be read. */
  static final int THREW = 3;
  /** TMS gave no leave; nothing was touched. */
  static final int NO_LEAVE = 10;
  /** Nobody answered within the limit; nothing was touched. */
  static final int NOBODY_ANSWERED = 11;
  /** The instant is not in the state that leave named; nothing was touched. */
  static final int NOTHING_TO_DO = 12;
  /** SIGTERM: 128 + 15. */
  static final int TERM = 143;

  private ExitCode() {}
}
