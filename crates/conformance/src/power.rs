//! The program around power cuts: its arguments, its counts, and what makes it pass. What a cut is knows the backend's
//! test: it lends a [`Cutter`].
//!
//! Without arguments it takes [`CUTS`] cuts and says its result as test programs do; `--cuts N` and `--seed S` change
//! that. The mutant, whose syncs do nothing, is cut too and must be caught.

use std::process::ExitCode;

use tms_core::clock::{Clock, SystemClock};

/// Cuts of a run that says nothing else.
pub const CUTS: u32 = 30;
/// Most cuts of one run.
pub const CUTS_MAX: u32 = 100_000;
/// Cuts within which a mutant must be caught.
pub const MUTANT_CUTS: u32 = 30;

/// What a store is when its power is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// As it is.
    Real,
    /// A mutant: what it syncs is not durable.
    Nothing,
}

/// What came of cuts.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// How often the power was cut.
    pub n_cuts: u32,
    /// Steps that were acknowledged.
    pub n_acknowledged: u64,
    /// Cuts after which something acknowledged was missing, or something half made was there, or the store did not open.
    pub n_missing: u32,
    /// What was wrong first.
    pub first: Option<String>,
    /// What else is worth a word: bytes that were dropped, cuts in the middle of an opening.
    pub notes: Vec<(&'static str, u64)>,
}

impl Tally {
    /// Adds to a note.
    pub fn note(&mut self, what: &'static str, n: u64) {
        match self.notes.iter_mut().find(|(of, _)| *of == what) {
            Some((_, sum)) => *sum += n,
            None => self.notes.push((what, n)),
        }
    }

    /// Counts a cut after which something was wrong.
    pub fn missing(&mut self, what: String) {
        self.n_missing += 1;
        self.first.get_or_insert(what);
    }
}

/// Cuts the power of one kind of store.
pub trait Cutter {
    /// The store's name.
    fn name(&self) -> &'static str;

    /// Returns why it cannot be done on this machine.
    fn missing_tool(&self) -> Option<String> {
        None
    }

    /// Cuts the power `n_cuts` times; ends early once something is missing.
    fn cut(&self, n_cuts: u32, seed: u64, sync: Sync) -> Tally;
}

/// A cheap random number; the seed is printed, so a run can be repeated as far as the machine allows.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Starts at a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        // Small seeds are far apart behind this.
        Self(seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Returns a number below `n`, 0 when `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n.max(1)
    }

    /// Tells yes in one of `n` cases.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// What the command line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Arguments {
    n_cuts: u32,
    seed: u64,
}

#[expect(clippy::print_stdout, reason = "a test program")]
fn say(text: &str) {
    println!("{text}");
}

/// Runs the program.
pub fn run(cutter: &dyn Cutter) -> ExitCode {
    let list: Vec<String> = std::env::args().skip(1).collect();
    if list.iter().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    let arguments = match arguments(&list, u64::from(std::process::id())) {
        Ok(Some(arguments)) => arguments,
        Ok(None) => {
            say("test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 2 filtered out");
            return ExitCode::SUCCESS;
        }
        Err(what) => {
            say(&format!("{what}; use --cuts N (1 to {CUTS_MAX}) and --seed S"));
            return ExitCode::from(2);
        }
    };
    let name = cutter.name();
    if let Some(tool) = cutter.missing_tool() {
        if std::env::var_os("CI").is_some_and(|value| value == "true") {
            say(&format!("power cuts of {name} need {tool}"));
            say("test result: FAILED. 0 passed; 2 failed; 0 ignored; 0 measured");
            return ExitCode::FAILURE;
        }
        say(&format!("SKIPPED power cuts of {name}: {tool} is missing"));
        say("test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured");
        return ExitCode::SUCCESS;
    }
    let is_whole = survives(cutter, arguments);
    let is_caught = catches(cutter, arguments);
    let n_passed = u32::from(is_whole) + u32::from(is_caught);
    let word = if n_passed == 2 { "ok" } else { "FAILED" };
    say(&format!("test result: {word}. {n_passed} passed; {} failed; 0 ignored; 0 measured", 2 - n_passed));
    if n_passed == 2 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn survives(cutter: &dyn Cutter, arguments: Arguments) -> bool {
    let clock = SystemClock::default();
    say(&format!("power cuts of {}: {}, seed {}", cutter.name(), arguments.n_cuts, arguments.seed));
    let tally = cutter.cut(arguments.n_cuts, arguments.seed, Sync::Real);
    let notes: String = tally.notes.iter().map(|(what, n)| format!(", {n} {what}")).collect();
    say(&format!(
        "{} cuts, {} acknowledged, {} missing{notes} ({:.0} s)",
        tally.n_cuts,
        tally.n_acknowledged,
        tally.n_missing,
        clock.monotonic().as_secs_f64()
    ));
    if let Some(first) = &tally.first {
        say(&format!("first: {first}"));
    }
    // Nothing acknowledged would show nothing.
    tally.n_missing == 0 && tally.n_cuts == arguments.n_cuts && tally.n_acknowledged > u64::from(tally.n_cuts)
}

fn catches(cutter: &dyn Cutter, arguments: Arguments) -> bool {
    let tally = cutter.cut(MUTANT_CUTS, arguments.seed, Sync::Nothing);
    let is_caught = tally.n_missing > 0;
    let word = if is_caught { "caught" } else { "NOT caught" };
    say(&format!(
        "mutant without the sync: {word} after {} cuts: {}",
        tally.n_cuts,
        tally.first.unwrap_or_default()
    ));
    is_caught
}

/// Reads the arguments; none when a filter asks for other tests.
fn arguments(list: &[String], seed: u64) -> Result<Option<Arguments>, String> {
    let mut found = Arguments { n_cuts: CUTS, seed };
    let mut list = list.iter();
    while let Some(argument) = list.next() {
        let mut number = || {
            let value = list.next().and_then(|value| value.parse::<u64>().ok());
            value.ok_or_else(|| format!("{argument} takes a number"))
        };
        match argument.as_str() {
            "--cuts" => {
                let n_cuts = number()?;
                found.n_cuts = u32::try_from(n_cuts).unwrap_or(0);
            }
            "--seed" => found.seed = number()?,
            // As libtest is called.
            "--show-output" | "--nocapture" | "--exact" | "--quiet" | "-q" => {}
            flag if flag.starts_with('-') => return Err(format!("unknown argument {flag}")),
            filter if "power_cuts".contains(filter) => {}
            _ => return Ok(None),
        }
    }
    if !(1..=CUTS_MAX).contains(&found.n_cuts) {
        return Err("too few or too many cuts".to_owned());
    }
    Ok(Some(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(list: &[&str]) -> Result<Option<Arguments>, String> {
        let list: Vec<String> = list.iter().map(|&argument| argument.to_owned()).collect();
        arguments(&list, 7)
    }

    #[test]
    fn arguments_are_those_of_the_command_and_of_test_programs() {
        assert_eq!(parsed(&[]), Ok(Some(Arguments { n_cuts: CUTS, seed: 7 })));
        assert_eq!(parsed(&["--show-output", "power"]), parsed(&[]));
        assert_eq!(parsed(&["--show-output", "another test"]), Ok(None));
        let asked = Ok(Some(Arguments { n_cuts: 500, seed: 1 }));
        assert_eq!(parsed(&["--cuts", "500", "--seed", "1"]), asked);
        for bad in [&["--cuts"][..], &["--cuts", "0"], &["--cuts", "x"], &["--rounds", "1"]] {
            assert!(parsed(bad).is_err(), "{bad:?}");
        }
    }

    struct Scripted {
        n_missing: u32,
        n_mutant: u32,
    }

    impl Cutter for Scripted {
        fn name(&self) -> &'static str {
            "scripted"
        }

        fn cut(&self, n_cuts: u32, _seed: u64, sync: Sync) -> Tally {
            let n_missing = if sync == Sync::Real { self.n_missing } else { self.n_mutant };
            Tally { n_cuts, n_acknowledged: 1_000, n_missing, ..Tally::default() }
        }
    }

    #[test]
    fn lost_work_and_an_uncaught_mutant_fail() {
        let arguments = Arguments { n_cuts: 10, seed: 1 };
        let good = Scripted { n_missing: 0, n_mutant: 1 };
        assert!(survives(&good, arguments) && catches(&good, arguments));
        assert!(!survives(&Scripted { n_missing: 1, n_mutant: 1 }, arguments));
        assert!(!catches(&Scripted { n_missing: 0, n_mutant: 0 }, arguments));
    }

    #[test]
    fn dice_of_one_seed_fall_alike_and_of_others_not() {
        let falls = |seed| {
            let mut dice = Dice::new(seed);
            (0..20).map(|_| dice.below(1_000)).collect::<Vec<_>>()
        };
        assert_eq!(falls(1), falls(1));
        assert_ne!(falls(1), falls(2));
        assert_ne!(falls(0), falls(1));
    }
}
