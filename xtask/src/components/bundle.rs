//! Hudi's Spark bundle of one release: by Maven, else by Spark's `--packages`, else given by hand.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::cache::Cache;
use crate::components::Tools;
use crate::environment::Environment;
use crate::errors::{Missing, Usage};
use crate::process::{capture, command};

/// Folder of the bundles in the cache.
pub(crate) const FOLDER: &str = "bundles";
const ARTIFACT: &str = "hudi-spark3.5-bundle_2.12";
const COPY_GOAL: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy";
/// The real ones are about 100 MB; less is an error page or a cut file.
const BYTES_MIN: u64 = 1 << 20;
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(15 * 60);
/// The end record of a zip file lies within its last 64 KiB and 22 bytes.
const ZIP_TAIL_BYTES: u64 = 65_557;

/// File name of one release's bundle.
pub(crate) fn file_name(release: &str) -> String {
    format!("{ARTIFACT}-{release}.jar")
}

/// Uses the bundle of the cache when it is whole, else fetches it.
pub(crate) fn set_up(env: &Environment, cache: &Cache, tools: &Tools, release: &str) -> Result<PathBuf> {
    check_release(release)?;
    let place = cache.path(FOLDER).join(file_name(release));
    if place.exists() {
        match check(&place) {
            Ok(()) => return Ok(place),
            Err(error) => println!("  fetching {} anew: {error:#}", place.display()),
        }
    }
    let staging = cache.staging("bundle")?;
    let made = fetch(env, tools, release, &staging.folder)?;
    cache.install(&made, &place)?;
    Ok(place)
}

/// A jar given by hand.
pub(crate) fn given(file: &Path) -> Result<PathBuf> {
    let file = std::path::absolute(file).with_context(|| format!("cannot resolve {}", file.display()))?;
    check(&file).with_context(|| Usage(format!("--bundle {} is no Hudi bundle", file.display())))?;
    Ok(file)
}

/// Refuses what cannot be a release: it becomes part of a file name and of Maven's coordinates.
pub(crate) fn check_release(release: &str) -> Result<()> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let is_good = !release.is_empty()
        && release.len() <= 64
        && release.chars().all(is_plain)
        && !release.contains("..");
    if is_good { Ok(()) } else { Err(Usage(format!("{release:?} is no release of Hudi; try 1.2.0")).into()) }
}

fn fetch(env: &Environment, tools: &Tools, release: &str, folder: &Path) -> Result<PathBuf> {
    let mut tried = Vec::new();
    if let Some(mvn) = env.which("mvn") {
        println!("  fetching the Hudi {release} bundle with Maven (about 100 MB, once)");
        match by_maven(tools, &mvn, release, folder) {
            Ok(jar) => return Ok(jar),
            Err(error) => tried.push(format!("Maven: {error:#}")),
        }
    } else {
        tried.push("Maven: mvn is not on the path".to_owned());
    }
    println!("  fetching the Hudi {release} bundle with Spark's --packages (about 100 MB, once)");
    match by_spark(tools, release, folder) {
        Ok(jar) => Ok(jar),
        Err(error) => {
            tried.push(format!("spark-submit --packages: {error:#}"));
            Err(Missing(format!(
                "the Hudi bundle org.apache.hudi:{ARTIFACT}:{release} could not be fetched; check that the release \
                 exists, or give a jar by hand: `cargo xtask quickstart --bundle FILE`, or put it to {}/{}\n  {}",
                env.cache.join(FOLDER).display(),
                file_name(release),
                tried.join("\n  ")
            ))
            .into())
        }
    }
}

fn by_maven(tools: &Tools, mvn: &Path, release: &str, folder: &Path) -> Result<PathBuf> {
    let mut copy = command(mvn);
    copy.current_dir(folder).env("JAVA_HOME", &tools.java_home).args([
        "-B",
        "-q",
        "-Dstyle.color=never",
        COPY_GOAL,
    ]);
    copy.arg(format!("-Dartifact=org.apache.hudi:{ARTIFACT}:{release}"));
    copy.arg(format!("-DoutputDirectory={}", folder.display()));
    let said = capture(&mut copy, DOWNLOAD_LIMIT)?;
    if !said.is_ok() {
        bail!("{}", first_error(&format!("{}{}", said.stdout, said.stderr)));
    }
    whole(folder.join(file_name(release)))
}

/// Spark resolves packages before it starts the program, so the program may do nothing.
fn by_spark(tools: &Tools, release: &str, folder: &Path) -> Result<PathBuf> {
    let program = folder.join("nothing.py");
    fs::write(&program, "").with_context(|| format!("cannot write {}", program.display()))?;
    let ivy = folder.join("ivy");
    let mut submit = tools.command(&tools.spark_home.join("bin/spark-submit"));
    submit.args(["--master", "local[1]", "--packages"]).arg(format!("org.apache.hudi:{ARTIFACT}:{release}"));
    submit.arg("--conf").arg(format!("spark.jars.ivy={}", ivy.display())).arg(&program);
    let said = capture(&mut submit, DOWNLOAD_LIMIT)?;
    if !said.is_ok() {
        bail!("{}", first_error(&format!("{}{}", said.stdout, said.stderr)));
    }
    whole(ivy.join("jars").join(format!("org.apache.hudi_{}", file_name(release))))
}

fn whole(jar: PathBuf) -> Result<PathBuf> {
    check(&jar)?;
    Ok(jar)
}

/// The line that tells why, out of a tool's hundred.
fn first_error(said: &str) -> String {
    let is_telling = |line: &&str| {
        line.contains("[ERROR]") || line.contains("unresolved dependency") || line.contains("Exception")
    };
    let line = said.lines().find(is_telling).or_else(|| said.lines().last()).unwrap_or("it said nothing");
    line.trim().chars().take(300).collect()
}

/// A whole jar: big enough, and a zip file from its first bytes to its end record.
pub(crate) fn check(jar: &Path) -> Result<()> {
    let mut file = File::open(jar).with_context(|| format!("cannot open {}", jar.display()))?;
    let bytes = file.metadata().with_context(|| format!("cannot look at {}", jar.display()))?.len();
    ensure!(bytes > BYTES_MIN, "{} has only {bytes} bytes", jar.display());
    let mut magic = [0; 4];
    file.read_exact(&mut magic).with_context(|| format!("cannot read {}", jar.display()))?;
    ensure!(magic == *b"PK\x03\x04", "{} is no jar", jar.display());
    file.seek(SeekFrom::Start(bytes.saturating_sub(ZIP_TAIL_BYTES))).context("cannot seek")?;
    let mut tail = Vec::new();
    file.take(ZIP_TAIL_BYTES)
        .read_to_end(&mut tail)
        .with_context(|| format!("cannot read {}", jar.display()))?;
    ensure!(tail.windows(4).any(|found| found == b"PK\x05\x06"), "{} is cut off", jar.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errors::exit_code;

    fn jar_of(folder: &Path, parts: &[&[u8]]) -> PathBuf {
        let jar = folder.join("x.jar");
        fs::write(&jar, parts.concat()).unwrap();
        jar
    }

    #[test]
    fn only_a_whole_jar_passes() {
        let folder = tempfile::tempdir().unwrap();
        let body = vec![7; 2 << 20];
        let end = b"PK\x05\x06aaaaaaaaaaaaaaaaaa";
        assert!(check(&jar_of(folder.path(), &[b"PK\x03\x04", &body, end])).is_ok());
        assert!(
            check(&jar_of(folder.path(), &[b"PK\x03\x04", &body]))
                .unwrap_err()
                .to_string()
                .contains("cut off")
        );
        assert!(
            check(&jar_of(folder.path(), &[b"<htm", &body, end])).unwrap_err().to_string().contains("no jar")
        );
        assert!(
            check(&jar_of(folder.path(), &[b"PK\x03\x04", end])).unwrap_err().to_string().contains("only")
        );
        assert_eq!(exit_code(&given(&folder.path().join("none.jar")).unwrap_err()), 2);
    }

    #[test]
    fn release_that_would_leave_the_folder_is_refused() {
        for release in ["", "../x", "1.2.0/../..", "1.2 0", "1.2.0;x", "a..b"] {
            assert_eq!(exit_code(&check_release(release).unwrap_err()), 2, "{release}");
        }
        for release in ["0.15.0", "1.2.0", "1.3.0-rc1", "1.1.0-SNAPSHOT"] {
            check_release(release).unwrap();
        }
    }

    #[test]
    fn error_line_is_picked_from_what_the_tool_said() {
        assert_eq!(
            first_error("[INFO] x\n[ERROR] Could not find artifact y\n[ERROR] help"),
            "[ERROR] Could not find artifact y"
        );
        assert_eq!(
            first_error(":: resolving\n:: unresolved dependency: a;b: not found\nx"),
            ":: unresolved dependency: a;b: not found"
        );
        assert_eq!(first_error(""), "it said nothing");
    }
}
