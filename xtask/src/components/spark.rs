//! Spark from PyPI, in a Python venv of its own in the cache.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::cache::Cache;
use crate::components::apt;
use crate::environment::Environment;
use crate::errors::Missing;
use crate::process::{capture, check_interrupted, command, run};

const VENV: &str = "spark-venv";
const REQUIREMENT: &str = "pyspark>=3.5,<3.6";
const CHECK_LIMIT: Duration = Duration::from_secs(120);
const VENV_LIMIT: Duration = Duration::from_secs(300);
/// The download is 320 MB.
const PIP_LIMIT: Duration = Duration::from_secs(20 * 60);

/// Prints version, Python's version and home of a whole pyspark 3.5. pip writes RECORD last, so each file it lists is there when all
/// went well.
const CHECK: &str = "
import importlib.metadata as m, os, sys
d = m.distribution('pyspark')
if not d.version.startswith('3.5.'):
    sys.exit('pyspark ' + d.version + ' is not 3.5')
for f in d.files or sys.exit('pyspark is not whole: RECORD is missing'):
    if f.suffix == '.jar' and f.size is not None and os.path.getsize(f.locate()) != f.size:
        sys.exit('pyspark is not whole: ' + str(f))
import pyspark
print(d.version)
print('.'.join(map(str, sys.version_info[:3])))
print(os.path.dirname(os.path.realpath(pyspark.__file__)))
";

/// Spark and the Python that belongs to it.
#[derive(Clone, Debug)]
pub(super) struct Spark {
    pub(super) version: String,
    pub(super) python_version: String,
    pub(super) python: PathBuf,
    pub(super) home: PathBuf,
}

/// Uses the venv of the cache when it is whole, else makes it.
pub(super) fn set_up(env: &Environment, cache: &Cache) -> Result<Spark> {
    let venv = cache.path(VENV);
    if venv.exists() {
        match check(&venv) {
            Ok(spark) => return Ok(spark),
            Err(error) => {
                check_interrupted()?;
                println!("  making {} anew: {error:#}", venv.display());
            }
        }
    }
    let base = base_python(env)?;
    println!("  installing {REQUIREMENT} from PyPI into {} (320 MB, once)", venv.display());
    let staging = cache.staging(VENV)?;
    let made = staging.folder.join(VENV);
    fill(&base, &made).context(Missing(format!(
        "Spark could not be installed from PyPI; check the network, or fill a venv by hand: \
         python3 -m venv {0} && {0}/bin/python -m pip install '{REQUIREMENT}'",
        venv.display()
    )))?;
    relocate(&made, &venv)?;
    cache.install(&made, &venv)?;
    check(&venv)
}

fn fill(base: &Path, venv: &Path) -> Result<()> {
    run(command(base).args(["-m", "venv"]).arg(venv), VENV_LIMIT)?;
    let mut pip = command(venv.join("bin/python"));
    pip.args(["-m", "pip", "install", "--no-input", "--quiet", "--disable-pip-version-check"]);
    run(pip.args(["--progress-bar", "off", REQUIREMENT]), PIP_LIMIT)
}

fn check(venv: &Path) -> Result<Spark> {
    let python = venv.join("bin/python");
    let said = capture(command(&python).args(["-c", CHECK]), CHECK_LIMIT)?;
    anyhow::ensure!(said.is_ok(), "{}", said.tail(1));
    let mut lines = said.stdout.lines();
    let mut line = || lines.next().map(str::to_owned).context("pyspark does not say where it is");
    let (version, python_version, home) = (line()?, line()?, PathBuf::from(line()?));
    anyhow::ensure!(home.join("bin/spark-submit").is_file(), "no spark-submit in {}", home.display());
    Ok(Spark { version, python_version, python, home })
}

/// The scripts of a venv hold its path; a venv that was moved needs the new one.
fn relocate(made: &Path, place: &Path) -> Result<()> {
    let (old, new) = (made.to_string_lossy(), place.to_string_lossy());
    let scripts =
        fs::read_dir(made.join("bin")).with_context(|| format!("cannot list {}", made.display()))?;
    let files = scripts.flatten().map(|entry| entry.path()).chain([made.join("pyvenv.cfg")]);
    for file in files.filter(|file| file.is_file() && !file.is_symlink()) {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        if text.contains(&*old) {
            // Written in place, so that the execute bits stay.
            fs::write(&file, text.replace(&*old, &new))
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
    }
    Ok(())
}

/// A Python 3.8 to 3.11 that can make venvs: Debian's needs python3-venv for that. The link of a version
/// switcher on the path may start nothing at all, so each candidate is asked, and the answer names the real
/// program.
fn base_python(env: &Environment) -> Result<PathBuf> {
    if let Some(python) = find_python(env) {
        return Ok(python);
    }
    apt::install(env, &["python3", "python3-venv"], "a Python 3.8 to 3.11 with venv is missing")?;
    find_python(env)
        .ok_or_else(|| Missing("no Python 3.8 to 3.11 that can make a venv was found".into()).into())
}

fn find_python(env: &Environment) -> Option<PathBuf> {
    // Spark 3.5 names 3.8 to 3.11; it was not tried with a later one.
    let names = ["python3", "python3.11", "python3.10", "python3.9", "python3.8"];
    let on_path = names.iter().filter_map(|name| env.which(name));
    on_path.chain([PathBuf::from("/usr/bin/python3")]).find_map(|python| ask_python(&python))
}

fn ask_python(python: &Path) -> Option<PathBuf> {
    let question = "import sys, venv, ensurepip\nassert (3, 8) <= sys.version_info[:2] <= (3, 11)\nprint(sys.executable)";
    let said = capture(command(python).args(["-c", question]), CHECK_LIMIT).ok()?;
    let real = PathBuf::from(said.stdout.trim());
    (said.is_ok() && real.is_file()).then_some(real)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn moved_venv_names_its_new_place() {
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("staging/venv");
        fs::create_dir_all(made.join("bin")).unwrap();
        let script = made.join("bin/pip");
        fs::write(&script, format!("#!{}/bin/python\n", made.display())).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(made.join("pyvenv.cfg"), "home = /usr/bin\n").unwrap();
        relocate(&made, Path::new("/cache/venv")).unwrap();
        assert_eq!(fs::read_to_string(&script).unwrap(), "#!/cache/venv/bin/python\n");
        assert_eq!(fs::metadata(&script).unwrap().permissions().mode() & 0o777, 0o755);
    }

    #[test]
    fn broken_link_of_a_version_switcher_is_no_python() {
        let folder = tempfile::tempdir().unwrap();
        let shim = folder.path().join("python3");
        fs::write(&shim, "#!/bin/sh\necho 'command not found' >&2\nexit 127\n").unwrap();
        fs::set_permissions(&shim, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(ask_python(&shim), None);
        assert_eq!(ask_python(Path::new("/no/such/python3")), None);
    }

    #[test]
    fn folder_that_is_no_venv_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(check(folder.path()).is_err());
    }
}
