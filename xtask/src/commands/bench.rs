//! `cargo xtask bench`: builds the release programs that a bench needs and runs it. `docs/dev/benches.md` says what each
//! compares.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::commands::crash::Store;
use crate::components::rocksdb::{self, Effort};
use crate::components::{Components, bundle};
use crate::environment::Environment;
use crate::marks;
use crate::process::{self, command};
use crate::repo::Repo;

/// The package of the benches.
pub(crate) const PACKAGE: &str = "tms-bench";
/// The release whose reader is the peer.
const HUDI_RELEASE: &str = "1.2.0";
/// Filling a large store takes some minutes; more with numbers of one's own.
const BENCH_LIMIT: Duration = Duration::from_secs(4 * 60 * 60);

/// Measure TMS beside its peers, in one run each; writes JSON to the build folder.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// What is measured.
    #[arg(value_enum)]
    name: Name,
    /// The store.
    #[arg(long, value_enum, default_value_t)]
    store: Store,
    /// Further arguments of the bench, after `--`; `-- --help` lists them.
    #[arg(last = true)]
    more: Vec<String>,
}

/// The benches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Name {
    /// Durable hand-overs, beside a bare echo and beside the disk.
    Handover,
    /// Choosing, changing, listing and pruning, from 1,000 to 1,000,000 tables.
    Decide,
    /// Time to the first answer and submission; memory.
    Start,
    /// A day of a very large lake in compressed time.
    Day,
    /// One look at a long timeline, beside Hudi's own reader.
    Reader,
}

impl Name {
    fn word(self) -> &'static str {
        match self {
            Self::Handover => "handover",
            Self::Decide => "decide",
            Self::Start => "start",
            Self::Day => "day",
            Self::Reader => "reader",
        }
    }

    fn needs_server(self) -> bool {
        matches!(self, Self::Handover | Self::Start)
    }
}

pub(crate) fn run(env: &Environment, repo: &Repo, arguments: &Arguments) -> Result<()> {
    // The benches hold both stores.
    rocksdb::set_up(env, repo, Effort::Compile)?;
    build(env, repo, arguments)?;
    let out = repo.target.join("bench");
    let release = |program: &str| repo.target.join("release").join(program);
    let mut bench = command(release(PACKAGE));
    bench.current_dir(&repo.root).arg("--out").arg(&out).arg(arguments.name.word());
    bench.arg("--work").arg(out.join("work"));
    if arguments.name == Name::Reader {
        give_java(env, repo, &mut bench)?;
    } else {
        bench.args(["--store", arguments.store.word()]);
    }
    if arguments.name.needs_server() {
        bench.arg("--server").arg(release("tms-server"));
    }
    bench.args(&arguments.more);
    let done = process::run(marks::mark(&mut bench), BENCH_LIMIT);
    marks::stop_own();
    done
}

/// The server gets the feature of the store that is measured and no other.
fn build(env: &Environment, repo: &Repo, arguments: &Arguments) -> Result<()> {
    let mut cargo = vec!["build", "--release", "--package", PACKAGE];
    if arguments.name.needs_server() {
        cargo.extend(["--package", "tms-server", "--bins"]);
        if arguments.store.needs_rocksdb() {
            cargo.extend(["--features", "tms-server/store-rocksdb"]);
        }
    }
    crate::cargo::run(env, repo, &cargo)
}

fn give_java(env: &Environment, repo: &Repo, bench: &mut Command) -> Result<()> {
    let components = Components::set_up(env, repo, &[HUDI_RELEASE])?;
    let jar: PathBuf = components.bundles.join(bundle::file_name(HUDI_RELEASE));
    bench.arg("--java-home").arg(&components.tools.java_home);
    bench.arg("--spark-home").arg(&components.tools.spark_home);
    bench.arg("--bundle").arg(jar);
    Ok(())
}
