//! `cargo xtask openapi`: the API description, and the older form that the client generator reads.

use anyhow::Result;

use crate::commands::generated;
use crate::environment::Environment;
use crate::repo::Repo;

/// Write api/openapi.json (3.1) and api/openapi-3.0.json from the server.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Change nothing; fail when a file is not current.
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(env: &Environment, repo: &Repo, arguments: &Arguments) -> Result<()> {
    generated::bring(env, repo, arguments.check, generated::openapi)
}
