//! The driver of a simulated job: a process of its own that asks for leave, reports and ends as the real job does, by
//! the same three routes, and touches a simulated table meanwhile. Started as
//! `tms-server simulated-driver FOLDER TAG NUMBER`, with address, tag and token in its environment.

mod link;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use tms_core::clock::{Clock, SystemClock};
use tms_core::engine::Force;
use tms_core::engine::simulated::driver::{Begun, Driver, Touching};
use tms_core::engine::simulated::fate::End;
use tms_core::engine::simulated::records::What;
use tms_core::engine::simulated::{DriverLaunch, DriverLauncher};
use tms_core::error::{Error, ErrorKind};
use tms_core::model::id::Tag;

use link::{Asked, Leave, Link};

/// First argument of a driver.
pub const SUBCOMMAND: &str = "simulated-driver";

/// The call returned.
const RETURNED: u8 = 0;
/// Arguments or environment are unusable.
const USAGE: u8 = 2;
/// The call threw, was stopped or ran too long.
const THREW: u8 = 3;
/// TMS gave no leave.
const NO_LEAVE: u8 = 10;
/// Nobody answered.
const NOBODY_ANSWERED: u8 = 11;
/// The instant is not in the state that leave named.
const NOTHING_TO_DO: u8 = 12;
/// SIGTERM: 128 + 15.
const TERM: u8 = 143;
/// SIGKILL: 128 + 9. Whoever ends so says nothing before.
const KILLED: u8 = 137;

/// How often a driver looks whether it is asked to end.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What a driver's process gets of the environment, beside what names the job.
const INHERITED: [&str; 2] = ["PATH", "TMS_XTASK_RUN"];

/// Starts each driver as a process of this very program.
#[derive(Clone, Debug)]
pub struct ProcessLauncher {
    program: PathBuf,
}

impl Default for ProcessLauncher {
    fn default() -> Self {
        // What runs now, whatever has been installed over its file meanwhile.
        Self::of(PathBuf::from("/proc/self/exe"))
    }
}

impl ProcessLauncher {
    /// Makes a launcher that starts another program, for servers inside a test's process.
    #[must_use]
    pub fn of(program: PathBuf) -> Self {
        Self { program }
    }
}

impl DriverLauncher for ProcessLauncher {
    fn launch(&self, launch: DriverLaunch) -> std::io::Result<u32> {
        let mut driver = tokio::process::Command::new(&self.program);
        driver
            .arg(SUBCOMMAND)
            .arg(&launch.folder)
            .arg(launch.tag.as_str())
            .arg(launch.number.to_string())
            .env_clear()
            .envs(INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))))
            .envs(launch.environment.iter().map(|(name, value)| (name, value.expose_secret())))
            .stdin(Stdio::from(launch.alive))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // An interrupt typed at the server's terminal is not meant for its jobs.
            .process_group(0);
        let child = driver.spawn()?;
        child.id().ok_or_else(|| std::io::Error::other("the driver ended at once"))
    }
}

/// Runs a driver when the arguments ask for one; returns its exit code.
#[must_use]
pub fn run(args: &[OsString]) -> Option<u8> {
    let (first, rest) = args.split_first()?;
    if first != SUBCOMMAND {
        return None;
    }
    let environment = |name: &str| std::env::var_os(name).and_then(|value| value.into_string().ok());
    Some(run_with(rest, &environment))
}

fn run_with(args: &[OsString], environment: &dyn Fn(&str) -> Option<String>) -> u8 {
    let [folder, tag, _number] = args else { return USAGE };
    let Some(Ok(tag)) = tag.to_str().map(str::parse::<Tag>) else { return USAGE };
    let (Some(url), Some(token)) = (environment("TMS_JOB_URL"), environment("TMS_JOB_TOKEN")) else {
        return USAGE;
    };
    let wait = environment("TMS_JOB_LEAVE_WAIT_SECS").and_then(|secs| secs.parse().ok()).unwrap_or(120);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let folder = PathBuf::from(OsStr::new(folder));
    let Ok(driver) = Driver::open(&folder, &tag, Arc::clone(&clock)) else { return USAGE };
    crate::assembly::install_tls();
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return USAGE;
    };
    let link =
        Link::new(&url, &tag, SecretString::from(token), driver.run_id().clone(), Duration::from_secs(wait));
    let Ok(link) = link else { return USAGE };
    runtime.block_on(drive(&driver, &link, &*clock))
}

/// How a driver ends.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Outcome {
    word: &'static str,
    code: u8,
    error: Option<String>,
}

impl Outcome {
    fn new(word: &'static str, code: u8) -> Self {
        Self { word, code, error: None }
    }

    fn untouched(code: u8, why: &str) -> Self {
        Self { word: "untouched", code, error: Some(why.to_owned()) }
    }

    fn threw(error: &Error) -> Self {
        Self { word: "threw", code: THREW, error: Some(error.chain()) }
    }
}

/// Lives the whole life of a driver. `None` inside = it is gone without a word.
async fn drive(driver: &Driver, link: &Link, clock: &dyn Clock) -> u8 {
    if let Some(force) = wait(driver, driver.start_delay()).await {
        // It never spoke, so that the engine says it was never there.
        return if force == Force::Kill { KILLED } else { TERM };
    }
    if driver.start().is_err() {
        // What is not on record must not happen.
        return USAGE;
    }
    let leave = match link.leave("start").await {
        Asked::Granted(leave) => leave,
        Asked::Refused(why) => return last_word(driver, NO_LEAVE, &format!("no leave: {why}")),
        Asked::Nobody(why) => return last_word(driver, NOBODY_ANSWERED, &why),
    };
    driver.log(&format!(
        "leave for {} {:?} of {}",
        leave.work.action, leave.work.instant, leave.work.base_path
    ));
    let Some(outcome) = work(driver, link, clock, leave).await else { return KILLED };
    // The timeline is the verdict; a report that nobody takes changes nothing.
    link.end(outcome.word, outcome.code, outcome.error.as_deref()).await;
    last_word(driver, outcome.code, outcome.error.as_deref().unwrap_or(outcome.word))
}

fn last_word(driver: &Driver, code: u8, why: &str) -> u8 {
    driver.log(&format!("exit {code}: {why}"));
    match driver.exit(i32::from(code), why) {
        Ok(()) => code,
        Err(_) => USAGE,
    }
}

async fn work(driver: &Driver, link: &Link, clock: &dyn Clock, first: Leave) -> Option<Outcome> {
    if link.progress("starting", 0).await {
        return Some(Outcome::untouched(NO_LEAVE, "told to stop"));
    }
    let leave = match link.leave("call").await {
        Asked::Granted(leave) if leave.is_same_work(&first) => leave,
        Asked::Granted(_) => return Some(Outcome::untouched(NO_LEAVE, "the second leave names other work")),
        Asked::Refused(why) => return Some(Outcome::untouched(NO_LEAVE, &why)),
        Asked::Nobody(why) => return Some(Outcome::untouched(NOBODY_ANSWERED, &why)),
    };
    match driver.begin(leave.work.clone()) {
        Ok(Begun::Touching(touching)) => run_call(driver, link, clock, &leave, *touching).await,
        Ok(Begun::NothingToDo) => {
            Some(Outcome::untouched(NOTHING_TO_DO, "the instant is not in the state that leave named"))
        }
        Ok(Begun::Double) => {
            Some(Outcome::untouched(NOTHING_TO_DO, "another simulated driver holds the plan"))
        }
        Err(e) => Some(Outcome::threw(&e)),
    }
}

/// Plays the procedure call: `None` when it was killed in it.
async fn run_call(
    driver: &Driver,
    link: &Link,
    clock: &dyn Clock,
    leave: &Leave,
    touching: Touching,
) -> Option<Outcome> {
    let begun_at = clock.monotonic();
    let run_time = driver.run_time();
    let mut next_progress = Duration::ZERO;
    let stopped = loop {
        let passed = clock.monotonic().saturating_sub(begun_at);
        if passed >= run_time {
            break None;
        }
        if passed >= leave.run_timeout {
            break Some(Outcome::new("timed_out", THREW));
        }
        if passed >= next_progress {
            next_progress = passed + leave.progress_every;
            if link.progress("running", percent(passed, run_time)).await {
                break Some(Outcome::new("stopped", THREW));
            }
        }
        match wait(driver, LOOK_EVERY.min(run_time - passed)).await {
            None => {}
            Some(Force::Gentle) => break Some(Outcome::new("stopped", TERM)),
            // Gone at once, and the lock on the plan with the process.
            Some(Force::Kill) => return None,
        }
    };
    let done = match (&stopped, driver.end()) {
        (Some(_), _) => driver.give_up(touching, What::Stopped),
        (None, End::Completes) => driver.finish(touching),
        (None, End::Throws | End::Vanishes) => driver.give_up(touching, What::Failed),
    };
    if let Err(e) = done {
        return Some(Outcome::threw(&e));
    }
    match (stopped, driver.end()) {
        (Some(outcome), _) => Some(outcome),
        (None, End::Completes) => Some(Outcome::new("returned", RETURNED)),
        (None, End::Throws) => {
            let error = Error::new(ErrorKind::Unexpected, "play the call, as the simulation wants");
            Some(Outcome::threw(&error))
        }
        (None, End::Vanishes) => None,
    }
}

/// Waits, and returns early when the driver is asked to end.
async fn wait(driver: &Driver, time: Duration) -> Option<Force> {
    let mut left = time;
    loop {
        if let Some(force) = driver.end_asked() {
            return Some(force);
        }
        if left.is_zero() {
            return None;
        }
        let step = left.min(LOOK_EVERY);
        tokio::time::sleep(step).await;
        left -= step;
    }
}

/// Never 100: that only comes from the timeline.
fn percent(passed: Duration, all: Duration) -> u8 {
    let share = passed.as_millis() * 100 / all.as_millis().max(1);
    u8::try_from(share.min(99)).unwrap_or(99)
}

#[cfg(test)]
mod tests;
