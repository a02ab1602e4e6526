//! `tms-server`: reads the configuration and runs one node. By itself it decides nothing.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, Subcommand};
use tms_core::clock::SystemClock;
use tms_core::store::kv::RestoredRows;
use tms_server::backup::{self, Backup};
use tms_server::config::store::StoreConfig;
use tms_server::config::{self, Loaded, Sources, print, reference};
use tms_server::server::Server;
use tms_server::{api, assembly, logging, simulated_driver};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A hand-over makes and frees some forty small pieces, on whichever thread; see ADR 10.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Exit code for a configuration or command line that cannot be used.
const USAGE: u8 = 2;

/// Table Management Service for Apache Hudi: runs the table services that writers hand over.
#[derive(Debug, Parser)]
#[command(name = "tms-server", version)]
struct Cli {
    /// Configuration file; without it ./tms.toml when there.
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Address and port to listen on (server.listen).
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Sets one configuration key, such as store.path=/data; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value, global = true)]
    set: Vec<(String, String)>,
    /// Prints the configuration as it would be used, secrets struck, and exits.
    #[arg(long)]
    print_config: bool,
    #[command(flatten)]
    faults: assembly::Faults,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Copies the store of a running server into a file.
    Backup {
        /// Address of the server.
        #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9091")]
        url: String,
        /// File with the token of its API, where it has one.
        #[arg(long, value_name = "FILE")]
        token_file: Option<PathBuf>,
        /// File that the copy is written to.
        #[arg(long, short, value_name = "FILE")]
        output: PathBuf,
        /// Replaces a file that is there.
        #[arg(long)]
        overwrite: bool,
    },
    /// Makes a new store in store.path from a copy; no server may run on it, and no store may be there.
    Restore {
        /// The copy, as `tms-server backup` wrote it.
        #[arg(value_name = "FILE")]
        copy: PathBuf,
    },
    /// Writes generated files to standard output, for the project's own build.
    #[command(hide = true, subcommand)]
    Generate(Generate),
}

#[derive(Debug, Subcommand)]
enum Generate {
    /// The description of the API.
    Openapi,
    /// Every configuration key with its default.
    ConfigReference,
    /// One preset.
    Preset { name: String },
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if key.contains('.') => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write SECTION.KEY=VALUE, such as store.path=/data".to_owned()),
    }
}

fn main() -> ExitCode {
    // Started as a part of a job: nothing may come before.
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some(code) = assembly::run_attempt(&args).or_else(|| simulated_driver::run(&args)) {
        return ExitCode::from(code);
    }
    let cli = Cli::parse();
    if let Err(bad) = cli.faults.arm() {
        return fail(USAGE, &bad);
    }
    let copy = match cli.command {
        Some(Command::Generate(what)) => return generate(&what),
        Some(Command::Backup { url, token_file, output, overwrite }) => {
            return back_up(&Backup { url, token_file, output, overwrite });
        }
        Some(Command::Restore { copy }) => Some(copy),
        None => None,
    };
    let mut flags = cli.set;
    flags.extend(cli.listen.map(|listen| ("server.listen".to_owned(), listen)));
    let loaded = match config::load(&Sources::of_process(cli.config, flags)) {
        Ok(loaded) => loaded,
        Err(faults) => return fail(USAGE, &faults.to_string()),
    };
    if cli.print_config {
        return match print::to_toml(&loaded.config) {
            Ok(text) => say(&text),
            Err(error) => fail(1, &format!("cannot print the configuration: {error}")),
        };
    }
    if let Some(copy) = copy {
        return restore(&loaded.config.store, &copy);
    }
    if let Err(error) =
        tracing::subscriber::set_global_default(logging::subscriber(&loaded.config.log, std::io::stderr))
    {
        return fail(1, &format!("cannot start the log: {error}"));
    }
    assembly::install_tls();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(1, &format!("cannot start the runtime: {error}")),
    };
    let outcome = runtime.block_on(run(&loaded));
    // A blocking call that hangs in a file system must not keep the process.
    runtime.shutdown_background();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(1, &format!("{error:#}")),
    }
}

async fn run(loaded: &Loaded) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let server = Server::assemble(loaded, Arc::new(SystemClock::default())).await?;
    let shutdown = CancellationToken::new();
    let mut serving = Box::pin(server.run(shutdown.clone()));
    tokio::select! {
        done = &mut serving => return Ok(done?),
        _ = terminate.recv() => tracing::info!("Got SIGTERM."),
        _ = interrupt.recv() => tracing::info!("Got SIGINT."),
    }
    shutdown.cancel();
    tokio::select! {
        done = serving => Ok(done?),
        _ = interrupt.recv() => anyhow::bail!("interrupted while stopping"),
    }
}

fn back_up(asked: &Backup) -> ExitCode {
    assembly::install_tls();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(1, &format!("cannot start the runtime: {error}")),
    };
    match runtime.block_on(backup::back_up(asked)) {
        Ok(rows) => say(&format!("{}: {}\n", asked.output.display(), counted(rows))),
        Err(error) => fail(error.exit_code(), &error.to_string()),
    }
}

fn restore(store: &StoreConfig, copy: &Path) -> ExitCode {
    match backup::restore(store, copy, &SystemClock::default()) {
        Ok(rows) => say(&format!(
            "restored into {}: {}\nSubmissions are held back until no job lives that the copy does not know.\n",
            store.path.display(),
            counted(rows)
        )),
        Err(error) => fail(error.exit_code(), &error.to_string()),
    }
}

fn counted(rows: RestoredRows) -> String {
    let RestoredRows { n_tables, n_live, n_ended } = rows;
    format!("{n_tables} tables, {n_live} live instances, {n_ended} ended instances")
}

fn generate(what: &Generate) -> ExitCode {
    match what {
        Generate::Openapi => say(&api::openapi_json()),
        Generate::ConfigReference => say(&reference::reference()),
        Generate::Preset { name } => match reference::preset(name) {
            Some(text) => say(&text),
            None => {
                fail(USAGE, &format!("there is no preset {name:?}; known: {}", reference::PRESETS.join(", ")))
            }
        },
    }
}

fn say(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn fail(code: u8, text: &str) -> ExitCode {
    // Nobody is left to tell when standard error is closed.
    drop(writeln!(std::io::stderr(), "tms-server: {text}"));
    ExitCode::from(code)
}
