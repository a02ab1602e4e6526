//! The two failures that have an exit code of their own; everything else is a plain failure (1).

use std::fmt;

/// A component that the command needs is not there and could not be fetched: exit code 3.
#[derive(Debug)]
pub(crate) struct Missing(pub(crate) String);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missing {}

/// The command line asks for something that makes no sense: exit code 2.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Exit code of an error: 3 a component is missing, 2 usage, else 1.
pub(crate) fn exit_code(error: &anyhow::Error) -> u8 {
    if error.downcast_ref::<Missing>().is_some() {
        3
    } else if error.downcast_ref::<Usage>().is_some() {
        2
    } else {
        1
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn exit_code_survives_added_context() {
        let missing: anyhow::Result<()> = Err(Missing("no Java".into()).into());
        let error = missing.context("set up Spark").context("quick start").unwrap_err();
        assert_eq!(exit_code(&error), 3);
        assert_eq!(exit_code(&anyhow::Error::from(Usage("rounds".into()))), 2);
        assert_eq!(exit_code(&anyhow::anyhow!("other")), 1);
    }
}
