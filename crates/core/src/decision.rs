//! Pure decisions: what a state may become, what may run next, what an observation means. No I/O, no async, no clock:
//! times are arguments.

pub mod barrier;
pub mod board;
pub mod check;
#[cfg(test)]
mod histories;
pub mod job_options;
pub mod judge;
pub mod leave;
pub mod reconcile;
pub mod retry;
pub mod transition;
