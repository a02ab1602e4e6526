//! Debian packages, only when they are missing and only as root.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::environment::Environment;
use crate::errors::Missing;
use crate::process::{check_interrupted, command, run};

const UPDATE_LIMIT: Duration = Duration::from_secs(5 * 60);
const INSTALL_LIMIT: Duration = Duration::from_secs(15 * 60);

/// Installs packages, or says which line a person types to do it.
pub(super) fn install(env: &Environment, packages: &[&str], why: &str) -> Result<()> {
    // What looks missing may only not have been asked, after an interrupt.
    check_interrupted()?;
    let by_hand = by_hand(packages, why);
    if env.which("apt-get").is_none() || !rustix::process::geteuid().is_root() {
        return Err(Missing(by_hand).into());
    }
    println!("  installing {} with apt-get ({why})", packages.join(" "));
    let get = |arguments: &[&str], limit| {
        let mut apt = command("apt-get");
        run(apt.args(arguments).env("DEBIAN_FRONTEND", "noninteractive"), limit)
    };
    get(&["update", "-qq"], UPDATE_LIMIT)
        .and_then(|()| {
            get(&[&["install", "-y", "-qq", "--no-install-recommends"], packages].concat(), INSTALL_LIMIT)
        })
        .context(Missing(by_hand))
}

fn by_hand(packages: &[&str], why: &str) -> String {
    format!("{why}; install it, on Debian with: sudo apt-get install {}", packages.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errors::exit_code;

    #[test]
    fn machine_without_apt_gets_the_line_to_type() {
        let mut env = Environment::read().unwrap();
        env.path = Vec::new();
        let error = install(&env, &["python3-venv"], "Python 3 is missing").unwrap_err();
        assert!(error.to_string().contains("apt-get install python3-venv"), "{error}");
        assert_eq!(exit_code(&error), 3);
    }
}
