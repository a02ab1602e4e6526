//! Reads what Rust's test programs print, and adds it up.

use std::fmt;

/// How many passed, failed and were skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

impl Counts {
    pub(crate) const ONE_PASSED: Self = Self { passed: 1, failed: 0, skipped: 0 };
    pub(crate) const ONE_FAILED: Self = Self { passed: 0, failed: 1, skipped: 0 };
    pub(crate) const ONE_SKIPPED: Self = Self { passed: 0, failed: 0, skipped: 1 };

    pub(crate) fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// Reads a closing line of another runner: `3 passed, 0 failed, 1 skipped`.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut parts = line.split(", ");
        let mut number = |word: &str| parts.next()?.strip_suffix(word)?.parse().ok();
        Some(Self { passed: number(" passed")?, failed: number(" failed")?, skipped: number(" skipped")? })
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// What becomes of one line of a test program that runs with `--show-output`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Show {
    Yes,
    /// Output of a test that passed.
    No,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    Tests,
    Successes,
    Failures,
}

/// Adds up the lines of test programs, one after another.
///
/// A test whose component is absent prints a line `SKIPPED <name>: <reason>` and passes. libtest shows the
/// output of a passed test only with `--show-output`; it is counted as skipped here, not as passed.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    counts: Counts,
    section: Section,
    /// Whether the lines are what one test printed, in which nothing is a result.
    is_in_output: bool,
    /// Whether the test whose output is being read was counted as skipped already.
    is_skip_counted: bool,
    n_skips: usize,
    has_result: bool,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            counts: Counts::default(),
            section: Section::Tests,
            is_in_output: false,
            is_skip_counted: false,
            n_skips: 0,
            has_result: false,
        }
    }
}

impl Tally {
    /// Takes one line and says whether a person wants to see it.
    pub(crate) fn line(&mut self, line: &str) -> Show {
        if let Some(result) = line.strip_prefix("test result: ")
            && !self.is_in_output
        {
            self.result(result);
            return Show::Yes;
        }
        match line {
            "successes:" => self.section = Section::Successes,
            "failures:" => self.section = Section::Failures,
            _ => return self.inside(line),
        }
        self.is_in_output = false;
        if self.section == Section::Failures { Show::Yes } else { Show::No }
    }

    fn inside(&mut self, line: &str) -> Show {
        if line.starts_with("---- ") && line.ends_with(" stdout ----") {
            self.is_in_output = true;
            self.is_skip_counted = false;
        }
        if line.starts_with("SKIPPED ") && self.section != Section::Failures {
            // Outside the output of a named test each line stands for itself.
            if self.section == Section::Tests || !self.is_skip_counted {
                self.n_skips += 1;
            }
            self.is_skip_counted = true;
            return Show::Yes;
        }
        if self.section == Section::Successes { Show::No } else { Show::Yes }
    }

    fn result(&mut self, result: &str) {
        let number = |word: &str| {
            let at = result.split([';', '.']).map(str::trim).find(|part| part.ends_with(word));
            at.and_then(|part| part.split(' ').next()?.parse::<usize>().ok()).unwrap_or(0)
        };
        let passed = number("passed");
        let n_skipped = self.n_skips.min(passed);
        self.counts += Counts {
            passed: passed - n_skipped,
            failed: number("failed"),
            skipped: n_skipped + number("ignored"),
        };
        self.section = Section::Tests;
        self.n_skips = 0;
        self.has_result = true;
    }

    /// What the program counted; one that ended badly without counting a failure is one failure.
    pub(crate) fn finish(self, is_ok: bool) -> Counts {
        let mut counts = self.counts;
        if counts.failed == 0 && (!is_ok || !self.has_result) {
            counts += Counts::ONE_FAILED;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(text: &str, is_ok: bool) -> (Counts, Vec<String>) {
        let mut tally = Tally::default();
        let shown = text.lines().filter(|line| tally.line(line) == Show::Yes).map(str::to_owned).collect();
        (tally.finish(is_ok), shown)
    }

    #[test]
    fn results_of_several_programs_add_up() {
        let text = "running 3 tests\ntest a ... ok\n\n\
            test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s\n\
            test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 7 filtered out; finished in 0.01s\n";
        assert_eq!(tally(text, false).0, Counts { passed: 7, failed: 2, skipped: 1 });
    }

    #[test]
    fn skipped_test_is_not_a_passed_one() {
        let text = "running 3 tests\ntest a ... ok\ntest b ... ok\ntest c ... ok\n\nsuccesses:\n\n\
            ---- a stdout ----\nnoise of a\nSKIPPED spark: TMS_SPARK_HOME is not set\nSKIPPED spark: said twice\n\n\
            ---- b stdout ----\nnoise of b\n\nsuccesses:\n    a\n    b\n    c\n\n\
            test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s\n";
        let (counts, shown) = tally(text, true);
        assert_eq!(counts, Counts { passed: 2, failed: 0, skipped: 1 });
        assert!(shown.iter().any(|line| line.starts_with("SKIPPED spark: TMS")));
        assert!(shown.iter().all(|line| !line.contains("noise")), "{shown:?}");
    }

    #[test]
    fn output_of_a_failed_test_is_shown_and_its_skip_line_does_not_count() {
        let text = "test a ... FAILED\n\nfailures:\n\n---- a stdout ----\nSKIPPED half: x\npanicked here\n\nfailures:\n    a\n\n\
            test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s\n";
        let (counts, shown) = tally(text, false);
        assert_eq!(counts, Counts::ONE_FAILED);
        assert!(shown.iter().any(|line| line == "panicked here"));
    }

    #[test]
    fn result_line_that_a_test_printed_is_no_result() {
        let inner = "test result: ok. 50 passed; 5 failed; 0 ignored; 0 measured; 0 filtered out";
        let text = format!(
            "test a ... ok\n\nsuccesses:\n\n---- a stdout ----\n{inner}\n\nsuccesses:\n    a\n\n\
             test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s\n"
        );
        assert_eq!(tally(&text, true).0, Counts::ONE_PASSED);
    }

    #[test]
    fn program_that_dies_before_its_result_is_a_failure() {
        assert_eq!(tally("running 3 tests\n", false).0, Counts::ONE_FAILED);
        assert_eq!(tally("", true).0, Counts::ONE_FAILED);
        let text = "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n";
        assert_eq!(tally(text, false).0, Counts { passed: 1, failed: 1, skipped: 0 });
    }

    #[test]
    fn closing_line_is_plain() {
        let counts = Counts { passed: 3, failed: 0, skipped: 1 };
        assert_eq!(counts.to_string(), "3 passed, 0 failed, 1 skipped");
        assert_eq!(Counts::parse(&counts.to_string()), Some(counts));
        for other in ["", "3 passed", "x passed, 0 failed, 1 skipped", "ok 3 passed, 0 failed, 1 skipped"] {
            assert_eq!(Counts::parse(other), None, "{other}");
        }
    }
}
