//! Where the checkout and the build folder are, and which files the checkout holds.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::environment::Environment;
use crate::process::{command, stdout_of};

const METADATA_LIMIT: Duration = Duration::from_secs(300);
/// A text file above this is data, not source.
const SOURCE_BYTES_MAX: u64 = 4 << 20;
/// More files than this means that the walk left the checkout.
const FILES_MAX: usize = 50_000;

/// The checkout, its build folder and what cargo knows about both.
#[derive(Debug)]
pub(crate) struct Repo {
    pub(crate) root: PathBuf,
    /// Respects `CARGO_TARGET_DIR`, because cargo says it.
    pub(crate) target: PathBuf,
    pub(crate) metadata: Value,
}

impl Repo {
    pub(crate) fn open(env: &Environment) -> Result<Self> {
        let root =
            Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in no checkout")?.to_owned();
        let mut metadata = command(&env.cargo);
        metadata.current_dir(&root).args(["metadata", "--format-version", "1", "--no-deps"]);
        let text = stdout_of(&mut metadata, METADATA_LIMIT)?;
        let metadata: Value = serde_json::from_str(&text).context("cannot read what cargo metadata says")?;
        let target =
            metadata["target_directory"].as_str().context("cargo metadata names no target folder")?.into();
        Ok(Self { root, target, metadata })
    }

    /// A program built by cargo's `dev` profile.
    pub(crate) fn built(&self, program: &str) -> PathBuf {
        self.target.join("debug").join(program)
    }

    /// Whether a package has a program of that name.
    pub(crate) fn has_program(&self, package: &str, program: &str) -> bool {
        let found = packages(&self.metadata).filter(|found| found["name"] == package);
        let mut targets = found.flat_map(|found| found["targets"].as_array().into_iter().flatten());
        targets.any(|target| target["name"] == program && is_kind(target, "bin"))
    }

    /// Every text file of the checkout with its content; build output, fixtures and hidden folders but `.ci`
    /// left out.
    pub(crate) fn files(&self) -> Result<Vec<SourceFile>> {
        let mut files = Vec::new();
        walk(&self.root, &self.root, &self.target, &mut files)?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(files)
    }
}

/// A text file of the checkout.
#[derive(Clone, Debug)]
pub(crate) struct SourceFile {
    /// Relative to the root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl SourceFile {
    pub(crate) fn is_rust(&self) -> bool {
        self.has_extension("rs")
    }

    pub(crate) fn has_extension(&self, extension: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|found| found == extension)
    }
}

/// The workspace's packages in what `cargo metadata --no-deps` says.
pub(crate) fn packages(metadata: &Value) -> impl Iterator<Item = &Value> {
    metadata["packages"].as_array().into_iter().flatten()
}

/// Whether a cargo target is of that kind (`bin`, `lib`, `test`).
pub(crate) fn is_kind(target: &Value, kind: &str) -> bool {
    target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|found| found == kind))
}

fn is_skipped(name: &str, relative: &str) -> bool {
    let is_hidden = name.starts_with('.') && name != ".ci";
    is_hidden
        || name == "target"
        || name == "node_modules"
        || name == "__pycache__"
        || relative == "tests/fixtures"
}

fn walk(root: &Path, folder: &Path, target: &Path, files: &mut Vec<SourceFile>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot list {}", folder.display()))?;
        let path = entry.path();
        let relative = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
        let kind = entry.file_type().with_context(|| format!("cannot look at {}", path.display()))?;
        if is_skipped(&entry.file_name().to_string_lossy(), &relative) || path == target || kind.is_symlink()
        {
            continue;
        }
        if kind.is_dir() {
            walk(root, &path, target, files)?;
        } else if entry.metadata().is_ok_and(|found| found.len() <= SOURCE_BYTES_MAX) {
            // A file that is no text has no lines to check; one that vanished meanwhile (an editor's)
            // neither.
            if let Ok(text) = fs::read_to_string(&path) {
                anyhow::ensure!(
                    files.len() < FILES_MAX,
                    "more than {FILES_MAX} files under {}",
                    root.display()
                );
                files.push(SourceFile { path: relative, text });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walk_takes_sources_and_leaves_build_output_and_fixtures() {
        let folder = tempfile::tempdir().unwrap();
        let put = |path: &str, bytes: &[u8]| {
            let file = folder.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, bytes).unwrap();
        };
        put("crates/a/src/lib.rs", b"//! A.\n");
        put(".ci/run", b"#!/usr/bin/env bash\n");
        put("target/debug/x.rs", b"x");
        put("out/x.rs", b"x");
        put(".git/x.rs", b"x");
        put("tests/fixtures/x.rs", b"x");
        put("logo.bin", &[0xff, 0xfe, 0x00]);
        let mut files = Vec::new();
        walk(folder.path(), folder.path(), &folder.path().join("out"), &mut files).unwrap();
        let mut paths: Vec<_> = files.iter().map(|file| file.path.as_str()).collect();
        paths.sort_unstable();
        assert_eq!(paths, [".ci/run", "crates/a/src/lib.rs"]);
    }

    #[test]
    fn this_checkout_is_found() {
        let repo = Repo::open(&Environment::read().unwrap()).unwrap();
        assert!(repo.has_program("xtask", "xtask") && !repo.has_program("xtask", "crash"));
        assert!(repo.files().unwrap().iter().any(|file| file.path == "xtask/src/repo.rs"));
    }
}
