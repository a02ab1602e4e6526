package io.tms.job;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.util.concurrent.TimeUnit;
import java.util.function.IntConsumer;

/**
 * Ends the job in a gentle way: when TMS says stop, at the own time limit, and on SIGTERM. Gentle means that the call
 * unwinds and gives Hudi's table lock back, since a lock left behind stops every writer. All with limits: a job that
 * does not unwind is ended all the same.
 */
final class StopControl {
  enum Why { TOLD, TIME_LIMIT, TERM }

  /** Nothing was touched yet: how long the main thread may take to notice. */
  private static final long NOTICE_MS = 5_000;
  /** A cancelled call ended within 0.3 s when measured; one that sits in a wait gets this long before it is woken. */
  private static final long INTERRUPT_AFTER_MS = 20_000;
  /** Then the call had its chance. */
  static final long UNWIND_MS = 60_000;
  /** Longest time from the known end to the end of the JVM: reports, and Spark's own stop. */
  private static final long CLOSE_MS = 60_000;
  private static final long TICK_MS = 100;

  private final Report report;
  /** Reports the end for a main thread that cannot; takes the exit code. */
  private final IntConsumer lastWords;
  private Why why;
  private long askedAt;
  private Thread calling;
  private boolean called;
  private CallWatch watch;
  private boolean interrupted;
  private long deadline = Long.MAX_VALUE;
  private boolean hasDeadline;
  private boolean ended;
  private long endedAt;
  private int endCode;

  StopControl(Report report, IntConsumer lastWords) {
    this.report = report;
    this.lastWords = lastWords;
  }

  void start() {
    Thread thread = new Thread(this::loop, "tms-stop");
    thread.setDaemon(true);
    thread.start();
    try {
      handleTerm();
    } catch (ReflectiveOperationException | RuntimeException e) {
      report.say("JOB", "no signal handler in this JVM: SIGTERM will end the job without unwinding");
    }
  }

  /**
   * The default reaction to SIGTERM runs Spark's shutdown hook beside the call and ends the JVM before it has unwound.
   * By reflection, because the signal classes are not part of the Java 8 platform that this is compiled for.
   */
  private void handleTerm() throws ReflectiveOperationException {
    Class<?> signal = Class.forName("sun.misc.Signal");
    Class<?> handler = Class.forName("sun.misc.SignalHandler");
    InvocationHandler onSignal = (proxy, method, args) -> {
      switch (method.getName()) {
        case "handle":
          ask(Why.TERM);
          return null;
        case "equals": return proxy == args[0];
        case "hashCode": return System.identityHashCode(proxy);
        default: return "tms-term";
      }
    };
    Object ours = Proxy.newProxyInstance(StopControl.class.getClassLoader(), new Class<?>[] {handler}, onSignal);
    signal.getMethod("handle", signal, handler).invoke(null, signal.getConstructor(String.class).newInstance("TERM"), ours);
  }

  synchronized void limit(long runTimeoutSecs) {
    deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(runTimeoutSecs);
    hasDeadline = true;
  }

  /** The first reason stays, but SIGTERM always decides the exit code. */
  synchronized void ask(Why reason) {
    if (why == null) {
      why = reason;
      askedAt = System.nanoTime();
      report.say("JOB", "stopping reason=" + reason.name().toLowerCase(java.util.Locale.ROOT));
    } else if (reason == Why.TERM) {
      why = reason;
    }
  }

  synchronized boolean isAsked() {
    return why != null;
  }

  synchronized Why why() {
    return why;
  }

  /** From here on the table may be touched. False when the job was told to stop before. */
  synchronized boolean beginCall(CallWatch callWatch) {
    if (why != null) {
      return false;
    }
    calling = Thread.currentThread();
    called = true;
    watch = callWatch;
    return true;
  }

  /** The call is over; a late interrupt must not hit what follows. */
  synchronized void endCall() {
    calling = null;
    Thread.interrupted();
  }

  /** The end is known; what is left is to report it and to go, within a limit of its own. */
  synchronized void closing(int code) {
    ended = true;
    endedAt = System.nanoTime();
    endCode = code;
  }

  synchronized boolean wasCalled() {
    return called;
  }

  private void loop() {
    while (true) {
      Integer giveUp = tick();
      if (giveUp != null) {
        lastWords.accept(giveUp);
        // Not exit(): shutdown hooks beside a call that still runs could leave it with the lock in its hands.
        Runtime.getRuntime().halt(giveUp);
      }
      try {
        Thread.sleep(TICK_MS);
      } catch (InterruptedException e) {
        return;
      }
    }
  }

  /** One look; an exit code when the JVM must go now. */
  private synchronized Integer tick() {
    long now = System.nanoTime();
    if (ended) {
      return millis(now - endedAt) > CLOSE_MS ? endCode : null;
    }
    if (hasDeadline && now - deadline > 0) {
      ask(Why.TIME_LIMIT);
      hasDeadline = false;
    }
    if (why == null) {
      return null;
    }
    long waitedMs = millis(now - askedAt);
    if (!called) {
      return waitedMs > NOTICE_MS ? untouchedCode(why) : null;
    }
    if (calling == null) {
      return waitedMs > UNWIND_MS + CLOSE_MS ? stoppedCode(why) : null;
    }
    watch.cancel();
    if (waitedMs > INTERRUPT_AFTER_MS && isAsleepBeforeTheLock(calling)) {
      return stoppedCode(why);
    }
    if (waitedMs > INTERRUPT_AFTER_MS && !interrupted) {
      interrupted = true;
      calling.interrupt();
    }
    return waitedMs > UNWIND_MS ? stoppedCode(why) : null;
  }

  /**
   * Whether the call sleeps between two tries to get the table lock: it holds none then, and ending the JVM is safe.
   * Waking it is not: a 0.15.0 client that gives up waiting deletes the lock file of whoever holds it (measured).
   */
  private static boolean isAsleepBeforeTheLock(Thread thread) {
    StackTraceElement[] stack = thread.getStackTrace();
    if (stack.length == 0 || !stack[0].getMethodName().startsWith("sleep")) {
      return false;
    }
    for (StackTraceElement frame : stack) {
      if (frame.getClassName().endsWith(".transaction.lock.LockManager") && frame.getMethodName().equals("lock")) {
        return true;
      }
    }
    return false;
  }

  private static long millis(long nanos) {
    return TimeUnit.NANOSECONDS.toMillis(nanos);
  }

  static int untouchedCode(Why why) {
    switch (why) {
      case TERM: return ExitCode.TERM;
      case TIME_LIMIT: return ExitCode.THREW;
      default: return ExitCode.NO_LEAVE;
    }
  }

  static int stoppedCode(Why why) {
    return why == Why.TERM ? ExitCode.TERM : ExitCode.THREW;
  }
}
