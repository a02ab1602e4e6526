//! Starting wrappers, and signals to the processes of an attempt: only to those that are proven to be of it.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use secrecy::ExposeSecret;
use tms_core::engine::Job;
use tms_core::model::id::Tag;
use tokio::process::{Child, Command};

use crate::attempt::WrapperClaim;
use crate::command;
use crate::config::SparkConfig;
use crate::proc::{self, ProcessMark, ProcessSeen};
use crate::status;
use crate::survey::{Survey, TAG_VARIABLE};
use crate::wrapper::SUBCOMMAND;

/// Scans of one kill: each takes what was forked during the one before.
const KILL_ROUNDS_MAX: u32 = 5;
/// Most processes that are named to people at once.
const NAMES_MAX: usize = 8;

/// Starts the wrapper of an attempt. `alive` becomes the standard input of all its processes.
///
/// # Errors
/// Nothing was started.
pub fn start_wrapper(config: &SparkConfig, job: &Job, folder: &Path, alive: File) -> io::Result<Child> {
    let mut wrapper = Command::new(&config.wrapper);
    wrapper
        .arg(SUBCOMMAND)
        .arg(folder)
        .env_clear()
        .envs(command::environment(config))
        .current_dir(folder)
        .stdin(Stdio::from(alive))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        // It outlives this process and whoever waits for it here.
        .kill_on_drop(false);
    for (name, value) in command::job_environment(job) {
        wrapper.env(name, value.expose_secret());
    }
    wrapper.spawn()
}

/// Which processes of an attempt get a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// All but the wrapper, which then stores how they ended.
    Driver,
    /// All.
    All,
}

/// Sends SIGTERM once to the driver. Returns how many processes got it.
///
/// # Errors
/// A process of the attempt could not be reached; the others got it all the same.
pub fn terminate(claim: &WrapperClaim, jvm: Option<ProcessMark>) -> io::Result<usize> {
    send_all(&living(claim, jvm, Whom::Driver)?, Signal::TERM)
}

/// Kills the processes of the attempt until none is left, within a few rounds.
///
/// # Errors
/// A process of the attempt could not be reached; the others were killed all the same.
pub fn kill(claim: &WrapperClaim, jvm: Option<ProcessMark>, whom: Whom) -> io::Result<()> {
    for _ in 0..KILL_ROUNDS_MAX {
        let members = living(claim, jvm, whom)?;
        if members.is_empty() {
            break;
        }
        send_all(&members, Signal::KILL)?;
    }
    Ok(())
}

/// Returns the living processes of the attempt that are seen here: those of its session and those that were recorded, those
/// that were started with its tag, and those that inherited its lock.
///
/// # Errors
/// `/proc` cannot be read.
pub fn living(claim: &WrapperClaim, jvm: Option<ProcessMark>, whom: Whom) -> io::Result<Vec<ProcessSeen>> {
    let survey = Survey::new()?;
    if !survey.here().is_same_boot(&claim.place) {
        // Nothing of an attempt outlives its boot.
        return Ok(Vec::new());
    }
    let is_ours = is_of(&claim.tag);
    let mut all = status::living_members(claim, jvm, survey.here(), survey.processes(), &is_ours);
    all.extend(survey.tagged(&claim.tag)?);
    // The wrapper is the first process of an attempt: what is older holds the lock as the submitter does for a moment.
    let is_younger = |p: &ProcessSeen| p.mark.start >= claim.wrapper.start;
    all.extend(survey.holders(&claim.tag)?.into_iter().filter(is_younger));
    all.retain(|p| whom == Whom::All || p.mark != claim.wrapper);
    all.sort_by_key(|p| p.mark);
    all.dedup_by_key(|p| p.mark);
    Ok(all)
}

/// Tells whether a process is a JVM that runs the job; `None` = it does not show it, above all when it is about to be gone.
/// Anything else that a driver leaves behind, such as an agent that a script of Spark started, does none of its work.
#[must_use]
pub fn is_driver(pid: u32) -> Option<bool> {
    match proc::program(pid)?.as_str() {
        "java" => proc::has_word(pid, command::JOB_CLASS),
        _ => Some(false),
    }
}

/// Names processes for people.
#[must_use]
pub fn names(all: &[ProcessSeen]) -> String {
    let mut names: Vec<String> = all.iter().take(NAMES_MAX).map(|p| proc::name(p.mark.pid)).collect();
    if all.len() > NAMES_MAX {
        names.push(format!("{} more", all.len() - NAMES_MAX));
    }
    names.join(", ")
}

/// Returns a look at what a process was started with: all that an attempt starts carry its tag.
pub fn is_of(tag: &Tag) -> impl Fn(u32) -> Option<bool> {
    let entry = format!("{TAG_VARIABLE}={tag}");
    move |pid| proc::has_environment(pid, &entry)
}

fn send_all(members: &[ProcessSeen], signal: Signal) -> io::Result<usize> {
    let sent: Vec<io::Result<bool>> = members.iter().map(|member| send(*member, signal)).collect();
    sent.into_iter().try_fold(0, |n, sent| sent.map(|was_there| n + usize::from(was_there)))
}

/// Sends a signal to exactly this process: its number may be another one's by now, so it is held first and looked at
/// again. Returns whether it was still there.
fn send(member: ProcessSeen, signal: Signal) -> io::Result<bool> {
    let Some(pid) = i32::try_from(member.mark.pid).ok().and_then(Pid::from_raw) else { return Ok(false) };
    let held: OwnedFd = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(held) => held,
        Err(rustix::io::Errno::SRCH) => return Ok(false),
        Err(e) => return Err(e.into()),
    };
    let is_same = proc::look(member.mark.pid)?.is_some_and(|now| now.mark == member.mark);
    if !is_same {
        return Ok(false);
    }
    match pidfd_send_signal(&held, signal) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::SRCH) => Ok(false),
        Err(e) => Err(e.into()),
    }
}
