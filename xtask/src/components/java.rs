//! A JDK that Spark 3.5 runs on.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use crate::components::apt;
use crate::environment::Environment;
use crate::errors::Missing;
use crate::process::{capture, command};

/// Spark 3.5 runs on Java 8, 11 and 17; all that we know of Hudi was measured on 17, and the job is built on
/// it.
const WANTED: u32 = 17;
const VERSION_LIMIT: Duration = Duration::from_secs(60);

/// Finds a JDK 17, or installs one; returns its home.
pub(super) fn set_up(env: &Environment) -> Result<PathBuf> {
    if let Some(home) = find(env) {
        return Ok(home);
    }
    apt::install(env, &["openjdk-17-jdk-headless"], "a JDK 17 (java and javac) is missing")?;
    find(env)
        .ok_or_else(|| Missing("a JDK 17 was installed but is not found; set JAVA_HOME to it".into()).into())
}

fn find(env: &Environment) -> Option<PathBuf> {
    candidates(env).into_iter().find(|home| is_wanted(home))
}

/// `$JAVA_HOME`, the `javac` of the path, then what Debian installs.
fn candidates(env: &Environment) -> Vec<PathBuf> {
    let mut homes: Vec<PathBuf> = env.java_home.iter().cloned().collect();
    let on_path = env.which("javac").and_then(|javac| fs::canonicalize(javac).ok());
    homes.extend(on_path.as_deref().and_then(Path::parent).and_then(Path::parent).map(Path::to_owned));
    let mut installed: Vec<PathBuf> =
        fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    installed.sort();
    homes.extend(installed);
    homes
}

fn is_wanted(home: &Path) -> bool {
    if !home.join("bin/java").is_file() {
        return false;
    }
    let said = capture(command(home.join("bin/javac")).arg("-version"), VERSION_LIMIT);
    said.is_ok_and(|said| said.is_ok() && major(&format!("{}{}", said.stdout, said.stderr)) == Some(WANTED))
}

/// `javac 17.0.15` is 17.
fn major(said: &str) -> Option<u32> {
    let version = said.lines().find_map(|line| line.strip_prefix("javac "))?;
    version.split(['.', '-', '+']).next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn major_version_is_read_from_what_javac_says() {
        assert_eq!(major("javac 17.0.15\n"), Some(17));
        assert_eq!(major("Picked up JAVA_TOOL_OPTIONS: -Dx=y\njavac 21\n"), Some(21));
        assert_eq!(major("javac 1.8.0_402\n"), Some(1));
        assert_eq!(major("no such file"), None);
    }

    #[test]
    fn folder_without_java_is_no_home() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!is_wanted(folder.path()));
    }
}
