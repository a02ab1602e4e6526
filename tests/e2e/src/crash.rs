//! Crash rounds: writers hand work over without pause, the server dies by SIGKILL at random moments, the simulated engine
//! loses answers, starts late and starts twice. The checker reads the writers' and the engine's own records, never TMS's.

pub mod checker;
pub mod lake;
pub mod server;
pub mod writers;

/// A cheap random number; the seed is printed, so a run can be repeated as far as the machine allows.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Starts at a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// Returns a number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n.max(1)
    }
}
