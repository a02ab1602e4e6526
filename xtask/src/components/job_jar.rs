//! The job jar: `jobs/spark` compiled against Spark's own jars, kept by the hash of its sources.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::cache::Cache;
use crate::components::Tools;
use crate::process::{command, run};
use crate::repo::Repo;

const FOLDER: &str = "jobs";
const SOURCES: &str = "jobs/spark/src";
const COMPILE_LIMIT: Duration = Duration::from_secs(300);
/// Hudi and Spark 3.5 still run on Java 8, so the job must too.
const JAVA_RELEASE: &str = "8";
/// Jars of earlier sources that stay for other checkouts.
const JARS_KEPT: usize = 20;

/// The jar of the checkout's sources; built when no such jar is in the cache.
pub(crate) fn set_up(cache: &Cache, repo: &Repo, tools: &Tools) -> Result<PathBuf> {
    let sources = sources(&repo.root.join(SOURCES))?;
    let place = cache.path(FOLDER).join(format!("tms-spark-job-{}.jar", hash(&sources, &tools.spark_home)?));
    if !place.is_file() {
        println!("  building the Spark job from {SOURCES}");
        let staging = cache.staging("job")?;
        let jar = build(tools, &sources, &staging.folder)?;
        cache.install(&jar, &place)?;
        prune(&cache.path(FOLDER), &place)?;
    }
    beside_server(cache, repo, &place)?;
    Ok(place)
}

fn sources(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))? {
            let path = entry.with_context(|| format!("cannot list {}", folder.display()))?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "java") {
                found.push(path);
            }
        }
    }
    found.sort();
    anyhow::ensure!(!found.is_empty(), "no Java source under {}", folder.display());
    Ok(found)
}

/// Sources and the Spark they are compiled against; the first 16 hex digits of SHA-256.
fn hash(sources: &[PathBuf], spark_home: &Path) -> Result<String> {
    let mut hasher = Sha256::new();
    let release = fs::read(spark_home.join("version.py")).unwrap_or_default();
    hasher.update(release);
    for source in sources {
        let bytes = fs::read(source).with_context(|| format!("cannot read {}", source.display()))?;
        hasher.update(source.file_name().unwrap_or_default().as_encoded_bytes());
        hasher.update(u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_le_bytes());
        hasher.update(&bytes);
    }
    Ok(hasher.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect())
}

fn build(tools: &Tools, sources: &[PathBuf], folder: &Path) -> Result<PathBuf> {
    let classes = folder.join("classes");
    let jar = folder.join("job.jar");
    let bin = tools.java_home.join("bin");
    let mut javac = command(bin.join("javac"));
    javac.args([
        "-Xlint:all,-options,-processing,-classfile,-path,-try",
        "-Werror",
        "--release",
        JAVA_RELEASE,
        "-cp",
    ]);
    javac.arg(tools.spark_home.join("jars/*")).arg("-d").arg(&classes).args(sources);
    run(&mut javac, COMPILE_LIMIT).context("the Spark job does not compile")?;
    let mut pack = command(bin.join("jar"));
    pack.args(["--create", "--file"]).arg(&jar).arg("-C").arg(&classes).arg(".");
    run(&mut pack, COMPILE_LIMIT).context("the Spark job cannot be packed")?;
    Ok(jar)
}

/// `tms-server` looks for the jar in its own folder unless it is configured. The debug build gets one before it is built.
fn beside_server(cache: &Cache, repo: &Repo, jar: &Path) -> Result<()> {
    let bytes = fs::read(jar).with_context(|| format!("cannot read {}", jar.display()))?;
    put(cache, &repo.target.join("debug"), &bytes)?;
    let release = repo.target.join("release");
    if release.join("tms-server").is_file() {
        put(cache, &release, &bytes)?;
    }
    Ok(())
}

fn put(cache: &Cache, folder: &Path, jar: &[u8]) -> Result<()> {
    let place = folder.join("tms-spark-job.jar");
    if fs::read(&place).is_ok_and(|found| found == jar) {
        return Ok(());
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let half = folder.join(".tms-spark-job.jar.new");
    fs::write(&half, jar).with_context(|| format!("cannot write {}", half.display()))?;
    cache.install(&half, &place)
}

/// Removes the oldest jars above [`JARS_KEPT`], never the one just made.
fn prune(folder: &Path, newest: &Path) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let is_ours = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("tms-spark-job-"))
    };
    let mut jars: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_ours).collect();
    jars.sort_by_key(|path| fs::metadata(path).and_then(|found| found.modified()).ok());
    let n_over = jars.len().saturating_sub(JARS_KEPT);
    for jar in jars.iter().take(n_over).filter(|jar| *jar != newest) {
        crate::cache::remove(jar)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_follows_the_sources() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        put("A.java", "class A {}");
        put("notes.txt", "no source");
        let one = sources(folder.path()).unwrap();
        assert_eq!(one.len(), 1);
        let first = hash(&one, folder.path()).unwrap();
        assert_eq!((first.len(), &first), (16, &hash(&one, folder.path()).unwrap()));
        put("A.java", "class A { }");
        assert_ne!(first, hash(&one, folder.path()).unwrap());
        put("B.java", "class B {}");
        assert_eq!(sources(folder.path()).unwrap().len(), 2);
    }

    #[test]
    fn empty_folder_of_sources_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(sources(folder.path()).unwrap_err().to_string().contains("no Java source"));
    }

    #[test]
    fn pruning_keeps_the_newest_jars() {
        let folder = tempfile::tempdir().unwrap();
        for n in 0..JARS_KEPT + 3 {
            fs::write(folder.path().join(format!("tms-spark-job-{n:02}.jar")), "x").unwrap();
        }
        fs::write(folder.path().join("other.jar"), "x").unwrap();
        prune(folder.path(), &folder.path().join("tms-spark-job-00.jar")).unwrap();
        let left = fs::read_dir(folder.path()).unwrap().count();
        assert!((JARS_KEPT + 1..=JARS_KEPT + 2).contains(&left), "{left}");
        assert!(
            folder.path().join("tms-spark-job-00.jar").exists() && folder.path().join("other.jar").exists()
        );
    }
}
