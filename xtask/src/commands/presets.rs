//! `cargo xtask presets`: the config reference and the presets.

use anyhow::Result;

use crate::commands::generated;
use crate::environment::Environment;
use crate::repo::Repo;

/// Write config/reference.toml and config/presets/ from the server's config types.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Change nothing; fail when a file is not current.
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(env: &Environment, repo: &Repo, arguments: &Arguments) -> Result<()> {
    generated::bring(env, repo, arguments.check, generated::presets)
}
