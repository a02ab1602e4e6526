//! `cargo xtask tidy`: the house rules that no compiler checks.

use anyhow::{Result, bail};

use crate::commands::generated;
use crate::environment::Environment;
use crate::repo::{Repo, SourceFile};
use crate::tidy::{
    Finding, Severity, arrows, behavior, isolation, limits, manifests, modules, names, paths, words,
};

/// Check the house rules: crate arrows, names, limits, generated files.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Arguments {
    /// Show the warnings as well: long functions and lines.
    #[arg(long)]
    warnings: bool,
}

pub(crate) fn run(env: &Environment, repo: &Repo, arguments: &Arguments) -> Result<()> {
    let files = repo.files()?;
    let mut findings = sources(&files);
    findings.extend(arrows::check(&repo.metadata));
    findings.extend(arrows::check_features(&repo.metadata));
    findings.extend(isolation::check(&crate::cargo::tree(env, repo, "tms-server")?));
    findings.extend(generated_files(repo)?);
    findings.sort_by(|a, b| (a.severity, &a.path, a.line).cmp(&(b.severity, &b.path, b.line)));
    for finding in findings.iter().filter(|found| arguments.warnings || found.severity == Severity::Error) {
        println!("{finding}");
    }
    let n_errors = findings.iter().filter(|found| found.severity == Severity::Error).count();
    let n_warnings = findings.len() - n_errors;
    let hint =
        if n_warnings > 0 && !arguments.warnings { " (shown by: cargo xtask tidy --warnings)" } else { "" };
    println!("tidy: {} files, {n_errors} errors, {n_warnings} warnings{hint}", files.len());
    if n_errors > 0 {
        bail!("the house rules are broken");
    }
    Ok(())
}

/// All checks that need nothing but the files.
fn sources(files: &[SourceFile]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = files
        .iter()
        .flat_map(|file| {
            [limits::check(file), words::check(file), names::check(file), manifests::check(file)]
        })
        .flatten()
        .collect();
    findings.extend(behavior::check(files));
    findings.extend(modules::check(files));
    findings.extend(paths::check(files));
    findings
}

/// Compared only when the server is built: `tidy` itself compiles nothing.
fn generated_files(repo: &Repo) -> Result<Vec<Finding>> {
    if !repo.built("tms-server").is_file() {
        println!("generated files are not compared: tms-server is not built");
        return Ok(Vec::new());
    }
    let mut all = generated::openapi(repo)?;
    all.extend(generated::presets(repo)?);
    let finding = |made: &generated::Generated| {
        Finding::error(&made.path, 0, format!("not current; write it with: cargo xtask {}", made.command))
    };
    Ok(generated::stale(&repo.root, &all).into_iter().map(finding).collect())
}
