//! RocksDB as a library: compiled from source once, and then linked by every build of the checkout.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::cache::{Cache, remove};
use crate::components::apt;
use crate::environment::Environment;
use crate::errors::Missing;
use crate::process::{command, run};
use crate::repo::Repo;

/// The package that needs it.
pub(crate) const PACKAGE: &str = "tms-store-rocksdb";
/// The crate that compiles RocksDB; its version names the archive.
const SYS_CRATE: &str = "librocksdb-sys";
const FOLDER: &str = "rocksdb";
const ARCHIVE: &str = "librocksdb.a";
/// Where Debian, Fedora and others put libclang, which the bindings are made with.
const CLANG_FOLDERS: [&str; 4] =
    ["/usr/lib", "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"];
/// 40 CPU-minutes on a machine of today; on one slow core twice that.
const COMPILE_LIMIT: Duration = Duration::from_secs(2 * 60 * 60);

/// What may be done to get the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Take it from the cache, or compile it.
    Compile,
    /// Take it from the cache, or do without.
    Quick,
}

/// Puts the library into the cache when it is not there.
///
/// # Errors
/// [`Missing`] when there is no libclang or no compiler, or when it is not there and may not be compiled.
pub(crate) fn set_up(env: &Environment, repo: &Repo, effort: Effort) -> Result<()> {
    if !has_libclang(env) {
        apt::install(env, &["libclang-dev"], "libclang is missing, which the RocksDB store is built with")?;
    }
    if env.is_rocksdb_given {
        println!("        RocksDB: the library that ROCKSDB_LIB_DIR names");
        return Ok(());
    }
    let cache = Cache::lock(&env.cache)?;
    let version = version(repo)?;
    let place = place(&env.cache, &version);
    if !place.is_file() {
        if effort == Effort::Quick {
            return Err(Missing(format!(
                "RocksDB {version} was not compiled yet, which takes some 40 CPU-minutes once: `cargo xtask test` does it"
            ))
            .into());
        }
        if env.which("c++").is_none() && env.which("g++").is_none() {
            apt::install(env, &["g++"], "a C++ compiler is missing, which RocksDB is compiled with")?;
        }
        compile(env, repo, &cache, &version, &place)?;
    }
    println!("        RocksDB {version} in {}", place.display());
    Ok(())
}

/// Whether the store can be built without compiling RocksDB.
pub(crate) fn is_there(env: &Environment, repo: &Repo) -> bool {
    let is_kept = || version(repo).is_ok_and(|version| place(&env.cache, &version).is_file());
    has_libclang(env) && (env.is_rocksdb_given || is_kept())
}

/// Lets a cargo command link the library of the cache. Without it in the cache, cargo compiles RocksDB.
///
/// Every cargo command of xtask gets the same variables, or each change between two of them would build again.
pub(crate) fn apply(env: &Environment, repo: &Repo, cargo: &mut Command) {
    if env.is_rocksdb_given {
        return;
    }
    let Some(place) = version(repo).ok().map(|version| place(&env.cache, &version)) else { return };
    if let Some(folder) = place.parent().filter(|_| place.is_file()) {
        cargo.env("ROCKSDB_LIB_DIR", folder).env("ROCKSDB_STATIC", "1");
    }
}

fn place(cache: &Path, version: &str) -> PathBuf {
    cache.join(FOLDER).join(version).join(ARCHIVE)
}

/// Lets the build script of the crate compile RocksDB in a folder of its own, and keeps the archive that it made.
fn compile(env: &Environment, repo: &Repo, cache: &Cache, version: &str, place: &Path) -> Result<()> {
    println!("  compiling RocksDB {version} once; some 40 CPU-minutes");
    let staging = cache.staging(FOLDER)?;
    let target = staging.folder.join("target");
    let mut cargo = command(&env.cargo);
    for name in Environment::names_of_our_package() {
        cargo.env_remove(name);
    }
    cargo.current_dir(&repo.root).env("CARGO_TARGET_DIR", &target);
    cargo.args(["build", "--release", "--package", PACKAGE, "--lib"]);
    run(&mut cargo, COMPILE_LIMIT).context("cannot compile RocksDB")?;
    let made = archive_under(&target.join("release/build"))
        .with_context(|| format!("{SYS_CRATE} left no {ARCHIVE} under {}", target.display()))?;
    cache.install(&made, place)?;
    remove_others(&env.cache.join(FOLDER), version)
}

/// The archive in the output folder of the crate's build script.
fn archive_under(builds: &Path) -> Option<PathBuf> {
    let scripts = fs::read_dir(builds).ok()?.flatten().map(|entry| entry.path());
    let mut ours = scripts.filter(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&format!("{SYS_CRATE}-")))
    });
    ours.find_map(|path| Some(path.join("out").join(ARCHIVE)).filter(|archive| archive.is_file()))
}

/// Archives of former versions are of no use to anybody.
fn remove_others(folder: &Path, version: &str) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?.flatten()
    {
        if entry.file_name() != version {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// `0.19.0+11.8.1`, the second part being RocksDB's own.
fn version(repo: &Repo) -> Result<String> {
    let path = repo.root.join("Cargo.lock");
    let lock = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    version_in(&lock).with_context(|| format!("{} names no {SYS_CRATE}", path.display()))
}

fn version_in(lock: &str) -> Option<String> {
    let name = format!("name = \"{SYS_CRATE}\"");
    let after = lock.lines().skip_while(|line| *line != name).nth(1)?;
    Some(after.strip_prefix("version = \"")?.strip_suffix('"')?.to_owned())
}

fn has_libclang(env: &Environment) -> bool {
    if env.is_libclang_given {
        return true;
    }
    let llvm = fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path());
    let llvm = llvm.filter(|path| path.to_string_lossy().contains("/llvm")).map(|path| path.join("lib"));
    CLANG_FOLDERS.iter().map(PathBuf::from).chain(llvm).any(|folder| holds_libclang(&folder))
}

fn holds_libclang(folder: &Path) -> bool {
    let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.map(|name| name.to_string_lossy().into_owned()).any(|name| {
        // `libclang-cpp.so` is another library.
        name.starts_with("libclang.so") || (name.starts_with("libclang-1") && name.contains(".so"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_the_one_of_the_lock_file() {
        let lock = "[[package]]\nname = \"librocksdb-sys\"\nversion = \"0.19.0+11.8.1\"\nsource = \"x\"\n";
        assert_eq!(version_in(lock).unwrap(), "0.19.0+11.8.1");
        assert_eq!(version_in("[[package]]\nname = \"rocksdb\"\nversion = \"1\"\n"), None);
    }

    #[test]
    fn libclang_is_told_from_its_relatives() {
        for (name, is_it) in [
            ("libclang-14.so.1", true),
            ("libclang.so", true),
            ("libclang.so.14", true),
            ("libclang-cpp.so.14", false),
            ("libclangAST.a", false),
        ] {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join(name), "").unwrap();
            assert_eq!(holds_libclang(folder.path()), is_it, "{name}");
        }
    }

    #[test]
    fn archive_is_found_among_the_build_scripts() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("librocksdb-sys-1f/out");
        fs::create_dir_all(folder.path().join("librocksdb-sys-2f")).unwrap();
        fs::create_dir_all(folder.path().join("other-1/out")).unwrap();
        fs::create_dir_all(&out).unwrap();
        assert_eq!(archive_under(folder.path()), None);
        fs::write(out.join(ARCHIVE), "!<arch>").unwrap();
        assert_eq!(archive_under(folder.path()), Some(out.join(ARCHIVE)));
    }
}
