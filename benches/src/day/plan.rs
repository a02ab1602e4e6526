//! What happens on the day: which table commits when, and which commits schedule a table service. The same for a seed.

use std::time::Duration;

/// The day's size and shape.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Length of the day.
    pub(crate) length: Duration,
    /// Tables of the lake.
    pub(crate) tables: usize,
    /// Commits of the day.
    pub(crate) commits: usize,
    /// Commits that schedule a table service.
    pub(crate) services: usize,
    /// What all draws start from.
    pub(crate) seed: u64,
}

/// Share of the tables that are hot, and of the commits that they make: 1 in so many tables makes 1 of so many commits.
const HOT_ONE_IN: usize = 100;
const HOT_COMMITS_ONE_IN: u64 = 2;
/// The busiest moment of the day has so many times the commits of the mean; the quietest has that much less.
const SWING: f64 = 0.5;

/// One commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Commit {
    /// When, from the begin of the day.
    pub(crate) at: Duration,
    /// Table.
    pub(crate) table: usize,
    /// It schedules a service.
    pub(crate) plans: bool,
}

/// Numbers from a seed (xorshift64*).
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// Starts at a seed.
    pub(crate) fn new(seed: u64) -> Self {
        // Spread by the golden ratio, so that seeds next to each other begin far apart; never 0.
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Returns the next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Returns a number below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    /// Returns a number from 0 to 1.
    pub(crate) fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Tells whether a table is one of the few that make half of the commits.
pub(crate) fn is_hot(table: usize) -> bool {
    table.is_multiple_of(HOT_ONE_IN)
}

/// Returns the commits of the day, in order.
pub(crate) fn commits(shape: &Shape) -> Vec<Commit> {
    let mut dice = Dice::new(shape.seed);
    let n_hot = shape.tables.div_ceil(HOT_ONE_IN);
    let mut commits: Vec<Commit> = (0..shape.commits)
        .map(|_| {
            let is_of_hot = dice.below(HOT_COMMITS_ONE_IN) == 0;
            let table = if is_of_hot {
                pick(&mut dice, n_hot) * HOT_ONE_IN
            } else {
                let cold = pick(&mut dice, shape.tables - n_hot);
                cold + cold / (HOT_ONE_IN - 1) + 1
            };
            Commit { at: moment(&mut dice, shape.length), table: table.min(shape.tables - 1), plans: false }
        })
        .collect();
    commits.sort_by_key(|commit| (commit.at, commit.table));
    // Exactly so many services, spread evenly over the commits.
    let mut left = shape.services;
    for (n_before, commit) in commits.iter_mut().enumerate() {
        let n_to_come = shape.commits - n_before;
        if pick(&mut dice, n_to_come) < left {
            commit.plans = true;
            left -= 1;
        }
    }
    commits
}

fn pick(dice: &mut Dice, n: usize) -> usize {
    usize::try_from(dice.below(n as u64)).unwrap_or(0)
}

/// Draws a moment of the day: quiet at its ends, busy in its middle.
fn moment(dice: &mut Dice, length: Duration) -> Duration {
    loop {
        let share = dice.share();
        let weight = 1.0 - SWING * (share * std::f64::consts::TAU).cos();
        if dice.share() * (1.0 + SWING) <= weight {
            return Duration::from_secs_f64((share * length.as_secs_f64() * 1e3).floor() / 1e3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_has_its_shape_and_is_the_same_for_a_seed() {
        let length = Duration::from_secs(86_400);
        let shape = Shape { length, tables: 1_950, commits: 35_000, services: 7_000, seed: 3 };
        let day = commits(&shape);
        assert_eq!(day, commits(&shape));
        assert_ne!(day, commits(&Shape { seed: 4, ..shape }));
        assert_eq!(day.len(), 35_000);
        assert_eq!(day.iter().filter(|commit| commit.plans).count(), 7_000);
        assert!(day.is_sorted_by_key(|commit| commit.at));
        assert!(day.iter().all(|commit| commit.table < 1_950 && commit.at < length));
        let n_hot = day.iter().filter(|commit| is_hot(commit.table)).count();
        assert!((16_500..18_500).contains(&n_hot), "{n_hot} commits of hot tables");
        let n_tables: std::collections::BTreeSet<usize> = day.iter().map(|commit| commit.table).collect();
        assert!(n_tables.len() > 1_800, "{} tables commit", n_tables.len());
    }
}
