//! Services and Managers together, over the memory store, a scripted engine and scripted tables, in paused time.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod life;
mod rig;
