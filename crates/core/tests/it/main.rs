//! Services and Managers together, over the memory store, a scripted engine and scripted tables, in paused time.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod advice;
mod cancel;
mod clean;
mod clocks;
mod damage;
mod foreign;
mod hudi_source;
mod leave;
mod life;
mod looks;
mod others;
mod parked;
mod passes;
mod queues;
mod register;
mod removed;
mod restart;
mod restored;
mod retry;
mod rig;
mod store_faults;
mod submit;
mod unread;
mod vanished;
mod watched;
