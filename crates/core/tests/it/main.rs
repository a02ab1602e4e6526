//! Services and Managers together, over the memory store, a scripted engine and scripted tables, in paused time.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod cancel;
mod clean;
mod damage;
mod foreign;
mod hudi_source;
mod leave;
mod life;
mod looks;
mod parked;
mod passes;
mod queues;
mod restart;
mod retry;
mod rig;
mod store_faults;
mod submit;
mod watched;
