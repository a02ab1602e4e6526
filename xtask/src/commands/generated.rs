//! Files of the checkout that are generated: written, or compared with what they should be. Shared by
//! `openapi`, `presets` and `tidy`.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::environment::Environment;
use crate::openapi::to_3_0;
use crate::process::{command, stdout_of};
use crate::repo::Repo;

const GENERATE_LIMIT: Duration = Duration::from_secs(60);
const OPENAPI: &str = "api/openapi.json";
const OPENAPI_3_0: &str = "api/openapi-3.0.json";
const REFERENCE: &str = "config/reference.toml";
const PRESETS: [&str; 2] = ["embedded-redb", "embedded-rocksdb"];

/// A generated file, with its path relative to the root and the content that it should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Generated {
    pub(crate) path: String,
    pub(crate) text: String,
    /// The command that writes it.
    pub(crate) command: &'static str,
}

/// The API descriptions, as the built server writes them.
pub(crate) fn openapi(repo: &Repo) -> Result<Vec<Generated>> {
    let text = server_says(repo, &["openapi"])?;
    let document: Value = serde_json::from_str(&text).context("tms-server generate openapi wrote no JSON")?;
    let made = |path: &str, document: &Value| -> Result<Generated> {
        let text = format!("{}\n", serde_json::to_string_pretty(document).context("cannot write JSON")?);
        Ok(Generated { path: path.to_owned(), text, command: "openapi" })
    };
    Ok(vec![made(OPENAPI, &document)?, made(OPENAPI_3_0, &to_3_0(&document)?)?])
}

/// The config reference and the presets, as the built server writes them.
pub(crate) fn presets(repo: &Repo) -> Result<Vec<Generated>> {
    let text = server_says(repo, &["config-reference"])?;
    let mut all = vec![Generated { path: REFERENCE.to_owned(), text, command: "presets" }];
    for preset in PRESETS {
        let text = server_says(repo, &["preset", preset])?;
        all.push(Generated { path: format!("config/presets/{preset}.toml"), text, command: "presets" });
    }
    Ok(all)
}

fn server_says(repo: &Repo, what: &[&str]) -> Result<String> {
    let mut server = command(repo.built("tms-server"));
    stdout_of(server.current_dir(&repo.root).arg("generate").args(what), GENERATE_LIMIT)
}

/// Files that differ from what they should be.
pub(crate) fn stale<'a>(root: &Path, all: &'a [Generated]) -> Vec<&'a Generated> {
    all.iter()
        .filter(|made| fs::read_to_string(root.join(&made.path)).ok().as_ref() != Some(&made.text))
        .collect()
}

/// Builds the server, then writes the files, or with `is_check` only says whether they are current.
pub(crate) fn bring(
    env: &Environment,
    repo: &Repo,
    is_check: bool,
    make: fn(&Repo) -> Result<Vec<Generated>>,
) -> Result<()> {
    crate::cargo::run(env, repo, &["build", "--quiet", "--package", "tms-server", "--bins"])?;
    write_or_check(&repo.root, &make(repo)?, is_check)
}

fn write_or_check(root: &Path, all: &[Generated], is_check: bool) -> Result<()> {
    let stale = stale(root, all);
    if is_check {
        match stale.first() {
            None => println!("{} files are current", all.len()),
            Some(first) => {
                let paths: Vec<&str> = stale.iter().map(|made| made.path.as_str()).collect();
                bail!("not current: {}; write them with: cargo xtask {}", paths.join(", "), first.command);
            }
        }
        return Ok(());
    }
    for made in all {
        let is_stale = stale.iter().any(|found| found.path == made.path);
        println!("{} {}", if is_stale { "wrote" } else { "current" }, made.path);
        if is_stale {
            write(&root.join(&made.path), &made.text)?;
        }
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_names_stale_files_and_writing_mends_them() {
        let folder = tempfile::tempdir().unwrap();
        let made =
            |path: &str| Generated { path: path.to_owned(), text: "new\n".to_owned(), command: "presets" };
        let all = [made("config/a.toml"), made("config/b.toml")];
        write(&folder.path().join("config/a.toml"), "new\n").unwrap();
        let error = write_or_check(folder.path(), &all, true).unwrap_err().to_string();
        assert!(
            error.contains("config/b.toml")
                && !error.contains("config/a.toml")
                && error.contains("cargo xtask presets"),
            "{error}"
        );
        write_or_check(folder.path(), &all, false).unwrap();
        write_or_check(folder.path(), &all, true).unwrap();
    }
}
