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

/// A JDK that will do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Java {
    pub(super) home: PathBuf,
    /// As javac says it: `17.0.15`.
    pub(super) version: String,
    /// Why `$JAVA_HOME` was not taken, when it is set and another one is used.
    pub(super) not_taken: Option<String>,
}

/// Finds a JDK 17, or installs one.
pub(super) fn set_up(env: &Environment) -> Result<Java> {
    if let Some(java) = find(env) {
        return Ok(java);
    }
    apt::install(env, &["openjdk-17-jdk-headless"], "a JDK 17 (java and javac) is missing")?;
    find(env)
        .ok_or_else(|| Missing("a JDK 17 was installed but is not found; set JAVA_HOME to it".into()).into())
}

fn find(env: &Environment) -> Option<Java> {
    let mut not_taken = None;
    for home in candidates(env) {
        match version_of(&home) {
            Ok(version) => return Some(Java { home, version, not_taken }),
            Err(why) if Some(&home) == env.java_home.as_ref() => {
                not_taken = Some(format!("JAVA_HOME={} was not taken: {why}", home.display()));
            }
            Err(_) => {}
        }
    }
    None
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

/// The version of a JDK 17, or why this folder will not do.
fn version_of(home: &Path) -> Result<String, String> {
    for program in ["bin/java", "bin/javac"] {
        if !home.join(program).is_file() {
            return Err(format!("it has no {program}; a JDK {WANTED} is needed"));
        }
    }
    let said = capture(command(home.join("bin/javac")).arg("-version"), VERSION_LIMIT)
        .map_err(|error| format!("{error:#}"))?;
    let text = format!("{}{}", said.stdout, said.stderr);
    let version = version(&text).filter(|_| said.is_ok());
    match version {
        Some(version) if major(version) == Some(WANTED) => Ok(version.to_owned()),
        Some(version) => Err(format!("it is Java {version}; a JDK {WANTED} is needed")),
        None => Err(format!("its javac says no version: {}", said.tail(1))),
    }
}

/// `javac 17.0.15` is version 17.0.15.
fn version(said: &str) -> Option<&str> {
    said.lines().find_map(|line| line.strip_prefix("javac ")).map(str::trim)
}

/// `17.0.15` is 17.
fn major(version: &str) -> Option<u32> {
    version.split(['.', '-', '+']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn jdk(folder: &Path, javac_says: &str) {
        fs::create_dir_all(folder.join("bin")).unwrap();
        for program in ["java", "javac"] {
            let file = folder.join("bin").join(program);
            fs::write(&file, format!("#!/bin/sh\n{javac_says}\n")).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    #[test]
    fn version_is_read_from_what_javac_says() {
        let majors = |said: &str| version(said).and_then(major);
        assert_eq!(version("javac 17.0.15\n"), Some("17.0.15"));
        assert_eq!(majors("javac 17.0.15\n"), Some(17));
        assert_eq!(majors("Picked up JAVA_TOOL_OPTIONS: -Dx=y\njavac 21\n"), Some(21));
        assert_eq!(majors("javac 1.8.0_402\n"), Some(1));
        assert_eq!(majors("no such file"), None);
    }

    #[test]
    fn java_home_that_will_not_do_is_told_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let (good, old) = (folder.path().join("good"), folder.path().join("old"));
        let (mute, empty) = (folder.path().join("mute"), folder.path().join("empty"));
        jdk(&good, "echo javac 17.0.9");
        jdk(&old, "echo javac 11.0.2");
        jdk(&mute, "echo broken >&2; exit 1");
        let mut env = Environment::read().unwrap();
        env.path = vec![good.join("bin")];
        for (home, why) in
            [(&old, "it is Java 11.0.2"), (&mute, "says no version: broken"), (&empty, "no bin/java")]
        {
            env.java_home = Some(home.clone());
            let found = find(&env).unwrap();
            assert_eq!(
                (found.home.as_path(), found.version.as_str()),
                (&*fs::canonicalize(&good).unwrap(), "17.0.9")
            );
            let told = found.not_taken.unwrap();
            assert!(told.contains(why) && told.contains(&home.display().to_string()), "{told}");
        }
        env.java_home = Some(good);
        assert_eq!(find(&env).unwrap().not_taken, None);
    }
}
