//! Faults on real Spark and real Hudi. `cargo xtask test` runs them on 1.2.0, and on 0.15.0 those that differ there;
//! `cargo xtask faults` runs all of them on 0.15.0, 1.0.2 and 1.2.0.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bundles;
mod clean;
mod clustering;
mod drivers;
mod elsewhere;
mod kills;

use tms_e2e::tools::{Tools, releases};
use tms_e2e::world::{World, with_world};

/// Cases that behave alike on all releases.
pub(crate) const USUAL: [&str; 1] = ["1.2.0"];
/// Cases that differ on the oldest release: its procedures, locks and heartbeats are others.
pub(crate) const DIFFERS: [&str; 2] = ["1.2.0", "0.15.0"];
/// The release whose tables a newer bundle can spoil.
pub(crate) const OLDEST: [&str; 1] = ["0.15.0"];

/// Runs a case on its releases, one after another.
pub(crate) fn on(usual: &[&str], case: impl Fn(&mut World) -> anyhow::Result<()>) {
    let Some(tools) = Tools::from_environment() else { return };
    for release in releases(usual) {
        if let Err(error) = with_world(&tools, &release, &case) {
            panic!("on {release}: {error:#}");
        }
    }
}
