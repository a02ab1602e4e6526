//! This test program, started again for one test that plays another process.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

/// Set for the process that a test starts: the folder that it is to open.
const FOLDER: &str = "TMS_ROCKSDB_TEST_FOLDER";

/// Returns the folder that the parent asks for; none when nobody started this as a child.
pub(crate) fn folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(Into::into)
}

/// Returns a command that starts this test program for one test.
pub(crate) fn command(test: &str, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(arguments(test)).env(FOLDER, folder);
    command
}

fn arguments(test: &str) -> [&str; 4] {
    [test, "--exact", "--nocapture", "--test-threads=1"]
}

/// A child that is killed when a test ends without it.
pub(crate) struct Running {
    child: Child,
    output: ChildStdout,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = child.stdout.take().unwrap();
        Self { child, output }
    }

    /// Reads what it says until that holds `word`, and returns it.
    pub(crate) fn until(&mut self, word: &str) -> String {
        let mut said = Vec::new();
        while !String::from_utf8_lossy(&said).contains(word) {
            let mut byte = [0];
            assert_eq!(
                self.output.read(&mut byte).unwrap(),
                1,
                "it ended: {}",
                String::from_utf8_lossy(&said)
            );
            said.push(byte[0]);
        }
        String::from_utf8(said).unwrap()
    }

    /// Kills it and returns what it had said besides.
    pub(crate) fn kill(mut self) -> String {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        rest
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
