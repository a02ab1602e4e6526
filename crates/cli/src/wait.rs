//! Waits until something has happened, showing how far it is. On a terminal one line is replaced; elsewhere a line is
//! written when something changes.

use std::future::Future;
use std::time::Duration;

use tms_client::types::Instance;
use tokio::time::{Instant, sleep, timeout_at};

use crate::arguments::WaitArguments;
use crate::commands::instance::load;
use crate::context::{Context, Out};
use crate::failure::Failure;
use crate::show;

/// State of an instance that a person has to help.
pub(crate) const PARKED: &str = "parked";
/// Time between two looks at the server.
const POLL_EVERY: Duration = Duration::from_millis(500);
/// Answers in a row that may fail before the wait gives up; a server that restarts is away for a moment.
const FAILURES_MAX: u32 = 20;

/// Looks in a row that find it parked before the wait ends: some reasons pass by themselves at once.
const PARKED_LOOKS: u32 = 2;

/// What is waited for, with its limits.
#[derive(Debug)]
pub(crate) struct Waiting {
    out: Out,
    deadline: Option<Instant>,
    last: String,
    n_failed: u32,
}

impl Waiting {
    /// Starts a wait; its limit counts from now, so a command begins with this.
    pub(crate) fn new(out: Out, arguments: &WaitArguments) -> Self {
        let deadline = arguments.timeout.and_then(|limit| Instant::now().checked_add(limit));
        Self { out, deadline, last: String::new(), n_failed: 0 }
    }

    /// Makes a call to the server, which must not last longer than the wait.
    pub(crate) async fn call<T>(&self, call: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        match self.deadline {
            None => call.await,
            Some(deadline) => timeout_at(deadline, call).await.unwrap_or_else(|_| Err(self.limit())),
        }
    }

    /// The end of a wait that took too long.
    fn limit(&self) -> Failure {
        self.end();
        let text = match self.last.as_str() {
            "" => "it took longer than the limit; the server gave no answer".to_owned(),
            last => format!("it took longer than the limit; last seen: {last}"),
        };
        Failure::WaitLimit(text)
    }

    /// Shows how far it is.
    pub(crate) fn tell(&mut self, text: String) {
        self.n_failed = 0;
        if text == self.last {
            return;
        }
        if self.out.has_terminal() {
            self.out.replace_line(&text);
        } else {
            self.out.aside(&text);
        }
        self.last = text;
    }

    /// Forgives a server that is away for a moment.
    pub(crate) fn forgive(&mut self, failure: Failure) -> Result<(), Failure> {
        self.n_failed += 1;
        match failure {
            Failure::Unreached(_) | Failure::Busy { .. } if self.n_failed <= FAILURES_MAX => Ok(()),
            other => Err(other),
        }
    }

    /// Pauses before the next look.
    pub(crate) async fn pause(&mut self) -> Result<(), Failure> {
        let now = Instant::now();
        let left = self.deadline.map(|d| d.saturating_duration_since(now));
        if left.is_some_and(|l| l.is_zero()) {
            return Err(self.limit());
        }
        sleep(left.unwrap_or(POLL_EVERY).min(POLL_EVERY)).await;
        Ok(())
    }

    /// Ends the line that was replaced.
    pub(crate) fn end(&self) {
        if self.out.has_terminal() && !self.last.is_empty() {
            self.out.end_line();
        }
    }
}

/// Waits until an instance has ended or waits for a person, and returns it.
pub(crate) async fn for_end(ctx: &Context, id: &str, mut waiting: Waiting) -> Result<Instance, Failure> {
    let mut n_parked = 0;
    loop {
        match waiting.call(load(ctx, id)).await {
            Ok(instance) => {
                waiting.tell(line_of(&instance));
                n_parked = if instance.state == PARKED { n_parked + 1 } else { 0 };
                if !instance.is_live || n_parked >= PARKED_LOOKS {
                    waiting.end();
                    return Ok(instance);
                }
            }
            Err(failure) => waiting.forgive(failure)?,
        }
        waiting.pause().await?;
    }
}

fn line_of(instance: &Instance) -> String {
    let what = format!("{} {}", instance.action, instance.instant.as_deref().unwrap_or("next"));
    let state = show::state(instance);
    match &instance.waits_for {
        Some(waits_for) if instance.is_live => format!("{what}: {state}; waits for {waits_for}"),
        _ => format!("{what}: {state}"),
    }
}
