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
use crate::place::Place;
use crate::proc::{self, ProcessMark, ProcessSeen};
use crate::status;
use crate::wrapper::SUBCOMMAND;

/// Scans of one kill: each takes what was forked during the one before.
const KILL_ROUNDS_MAX: u32 = 5;

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

/// Which processes of a session get a signal.
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
/// A process of the attempt could not be reached.
pub fn terminate(claim: &WrapperClaim, jvm: Option<ProcessMark>) -> io::Result<usize> {
    let members = living(claim, jvm, Whom::Driver)?;
    let mut n_reached = 0;
    for member in &members {
        n_reached += usize::from(send(*member, Signal::TERM)?);
    }
    Ok(n_reached)
}

/// Kills the processes of the session until none is left, within a few rounds.
///
/// # Errors
/// A process of the attempt could not be reached.
pub fn kill(claim: &WrapperClaim, jvm: Option<ProcessMark>, whom: Whom) -> io::Result<()> {
    for _ in 0..KILL_ROUNDS_MAX {
        let members = living(claim, jvm, whom)?;
        if members.is_empty() {
            break;
        }
        for member in members {
            send(member, Signal::KILL)?;
        }
    }
    Ok(())
}

fn living(claim: &WrapperClaim, jvm: Option<ProcessMark>, whom: Whom) -> io::Result<Vec<ProcessSeen>> {
    let here = Place::here()?;
    if !here.is_same_boot(&claim.place) || here.pid_namespace != claim.place.pid_namespace {
        // Its numbers mean other processes here.
        return Ok(Vec::new());
    }
    let processes = proc::scan()?;
    let mut members = status::members(claim, jvm, &processes, &is_of(&claim.tag));
    members.retain(|m| !m.is_zombie && (whom == Whom::All || m.mark != claim.wrapper));
    Ok(members)
}

/// Returns a look at what a process was started with: all that an attempt starts carry its tag.
pub fn is_of(tag: &Tag) -> impl Fn(u32) -> Option<bool> {
    let entry = format!("TMS_JOB_TAG={tag}");
    move |pid| proc::has_environment(pid, &entry)
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
