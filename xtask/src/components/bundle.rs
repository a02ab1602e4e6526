//! Hudi's Spark bundle of one release: by Maven, else by Spark's `--packages`, else given by hand.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::cache::Cache;
use crate::components::Tools;
use crate::environment::Environment;
use crate::errors::{Missing, Usage};
use crate::process::{capture, check_interrupted, command};

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

/// One way to a bundle: its name, and the call.
type Way<'a> = (&'static str, Box<dyn FnOnce() -> Result<PathBuf> + 'a>);

/// A repository was asked and does not have the release.
#[derive(Debug)]
struct Absent(String);

impl std::fmt::Display for Absent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Absent {}

fn fetch(env: &Environment, tools: &Tools, release: &str, folder: &Path) -> Result<PathBuf> {
    let mut ways: Vec<Way<'_>> = Vec::new();
    if let Some(mvn) = env.which("mvn") {
        ways.push(("Maven", Box::new(move || by_maven(tools, &mvn, release, folder))));
    }
    ways.push(("Spark's --packages", Box::new(|| by_spark(tools, release, folder))));
    let by_hand = format!("put it to {}/{}", env.cache.join(FOLDER).display(), file_name(release));
    by_one_of(ways, release, &by_hand, check_interrupted)
}

/// Tries one way after the other. `go_on` fails once a person has asked to stop: then no further way is begun.
fn by_one_of(
    ways: Vec<Way<'_>>,
    release: &str,
    by_hand: &str,
    go_on: impl Fn() -> Result<()>,
) -> Result<PathBuf> {
    let mut tried = Vec::new();
    let mut is_absent = true;
    for (name, way) in ways {
        go_on()?;
        println!("  fetching the Hudi {release} bundle with {name} (about 100 MB, once)");
        match way() {
            Ok(jar) => return Ok(jar),
            Err(error) => {
                is_absent &= error.downcast_ref::<Absent>().is_some();
                tried.push(format!("{name}: {error:#}"));
            }
        }
    }
    go_on()?;
    let what = if is_absent {
        format!(
            "no repository has the Hudi release {release} for Spark 3.5 (org.apache.hudi:{ARTIFACT}:{release}); \
             0.15.0, 1.0.2 and 1.2.0 are tested: try one of them with --hudi-version"
        )
    } else {
        format!(
            "the Hudi bundle org.apache.hudi:{ARTIFACT}:{release} could not be fetched; check the network"
        )
    };
    let by_hand = format!("or give a jar by hand: `cargo xtask quickstart --bundle FILE`, or {by_hand}");
    Err(Missing(format!("{what}, {by_hand}\n  {}", tried.join("\n  "))).into())
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
        return Err(failure(&format!("{}{}", said.stdout, said.stderr)));
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
        return Err(failure(&format!("{}{}", said.stdout, said.stderr)));
    }
    whole(ivy.join("jars").join(format!("org.apache.hudi_{}", file_name(release))))
}

fn whole(jar: PathBuf) -> Result<PathBuf> {
    check(&jar)?;
    Ok(jar)
}

/// Tells a release that is not there from a repository that was not reached. Ivy says `not found` of both, and of the
/// second also why; Maven remembers what it did not find (measured with Maven 3.8 and the Ivy of Spark 3.5).
fn failure(said: &str) -> anyhow::Error {
    let unreached = ["Server access error", "Could not transfer"];
    let not_there = ["Could not find artifact", "was not found in", ": not found"];
    let tells = |line: &str| line.contains(ARTIFACT) && not_there.iter().any(|words| line.contains(words));
    let is_absent = said.lines().any(tells) && !unreached.iter().any(|words| said.contains(words));
    let line = first_error(said);
    if is_absent { Absent(line).into() } else { anyhow::Error::msg(line) }
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
    fn after_an_interrupt_no_further_way_is_begun() {
        let is_stopped = std::cell::Cell::new(false);
        let go_on = || if is_stopped.get() { Err(anyhow::anyhow!("interrupted")) } else { Ok(()) };
        let first: Way<'_> = (
            "the first",
            Box::new(|| {
                is_stopped.set(true);
                Err(anyhow::anyhow!("ended by the signal"))
            }),
        );
        let second: Way<'_> = ("the second", Box::new(|| unreachable!("it was begun")));
        let error = by_one_of(vec![first, second], "1.2.0", "put it there", go_on).unwrap_err();
        assert_eq!(error.to_string(), "interrupted");
    }

    #[test]
    fn release_that_no_repository_has_is_told_from_a_repository_that_was_not_reached() {
        let maven = format!(
            "[ERROR] Failed: Could not find artifact org.apache.hudi:{ARTIFACT}:jar:9.9.9 in central"
        );
        let again = format!("[ERROR] Failed: org.apache.hudi:{ARTIFACT}:jar:9.9.9 was not found in central");
        let ivy = format!("\t:: org.apache.hudi#{ARTIFACT};9.9.9: not found");
        let down = ":::: ERRORS\n\tServer access error at url http://r/h.pom (java.net.ConnectException)\n";
        let fail = |said: &str| -> Way<'static> {
            let said = said.to_owned();
            ("a way", Box::new(move || Err(failure(&said))))
        };
        let text = |ways| {
            let error = by_one_of(ways, "9.9.9", "put it there", || Ok(())).unwrap_err();
            assert_eq!(exit_code(&error), 3);
            error.to_string()
        };
        let unknown = text(vec![fail(&maven), fail(&again), fail(&ivy)]);
        assert!(unknown.starts_with("no repository has the Hudi release 9.9.9"), "{unknown}");
        assert!(unknown.contains("--hudi-version") && unknown.contains("put it there"), "{unknown}");
        for ways in [
            vec![fail(&maven), fail(&format!("{down}{ivy}"))],
            vec![fail("[ERROR] Could not find artifact the:plugin:jar")],
        ] {
            let unreached = text(ways);
            assert!(unreached.contains("could not be fetched; check the network"), "{unreached}");
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
