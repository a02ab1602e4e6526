//! What befalls one simulated job. Drawn from the seed and the tag alone: pure, and the same after a restart.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::SimulatedConfig;
use crate::model::id::Tag;

/// What becomes of the answer to a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// It arrives.
    Given,
    /// It is lost, and the job runs.
    LostAfterStart,
    /// It is lost, and nothing runs.
    LostBeforeStart,
}

/// How a job ends when nobody stops it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The plan is completed.
    Completes,
    /// The job reports an error; the plan stays inflight.
    Throws,
    /// The driver is gone without a word; the plan stays inflight.
    Vanishes,
}

/// What befalls one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// The submission is refused.
    pub is_refused: bool,
    /// What becomes of the answer.
    pub answered: Answered,
    /// The engine does not know the job before its driver speaks.
    pub is_late: bool,
    /// Drivers started for the one submission: 1 or 2.
    pub n_drivers: u32,
    /// How it ends.
    pub end: End,
}

impl Fate {
    /// Draws the fate of one job.
    #[must_use]
    pub fn of(config: &SimulatedConfig, tag: &Tag) -> Self {
        let draw = |what: &str| draw(config.seed, what, tag);
        let hits = |what: &str, every: u32| every > 0 && draw(what).is_multiple_of(u64::from(every));
        let coin = |what: &str| draw(what).is_multiple_of(2);
        let answered = match (hits("lost", config.lost_answer_every), coin("lost started")) {
            (false, _) => Answered::Given,
            (true, true) => Answered::LostAfterStart,
            (true, false) => Answered::LostBeforeStart,
        };
        let end = match (hits("fail", config.fail_every), coin("fail silently")) {
            (false, _) => End::Completes,
            (true, true) => End::Throws,
            (true, false) => End::Vanishes,
        };
        Self {
            is_refused: hits("refuse", config.refuse_every),
            answered,
            is_late: hits("late", config.late_every),
            n_drivers: if hits("duplicate", config.duplicate_start_every) { 2 } else { 1 },
            end,
        }
    }
}

fn draw(seed: u64, what: &str, tag: &Tag) -> u64 {
    let digest = Sha256::new()
        .chain_update(seed.to_be_bytes())
        .chain_update([0])
        .chain_update(what)
        .chain_update([0])
        .chain_update(tag.as_str())
        .finalize();
    digest.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::{Incarnation, InstanceId};

    fn tags(n: usize) -> Vec<Tag> {
        let incarnation = Incarnation("0a1b2c3d".to_owned());
        (0..n).map(|_| Tag::of(&incarnation, InstanceId::new(), 1)).collect()
    }

    #[test]
    fn nothing_befalls_a_job_by_default() {
        let usual = Fate {
            is_refused: false,
            answered: Answered::Given,
            is_late: false,
            n_drivers: 1,
            end: End::Completes,
        };
        for tag in tags(50) {
            assert_eq!(Fate::of(&SimulatedConfig::default(), &tag), usual);
        }
    }

    #[test]
    fn one_in_n_is_hit_and_both_kinds_occur() {
        let config =
            SimulatedConfig { lost_answer_every: 4, fail_every: 4, seed: 7, ..SimulatedConfig::default() };
        let fates: Vec<Fate> = tags(2_000).iter().map(|t| Fate::of(&config, t)).collect();
        let share = |is: fn(&Fate) -> bool| fates.iter().filter(|f| is(f)).count();
        // 500 and 250 are expected; the bounds are ten standard deviations away.
        assert!((300..700).contains(&share(|f| f.answered != Answered::Given)));
        assert!((100..400).contains(&share(|f| f.answered == Answered::LostBeforeStart)));
        assert!((100..400).contains(&share(|f| f.end == End::Vanishes)));
        assert!((100..400).contains(&share(|f| f.end == End::Throws)));
    }

    #[test]
    fn a_fate_depends_on_seed_and_tag_only() {
        let config =
            SimulatedConfig { refuse_every: 2, late_every: 3, seed: 1, ..SimulatedConfig::default() };
        let other = SimulatedConfig { seed: 2, ..config.clone() };
        let tags = tags(64);
        for tag in &tags {
            assert_eq!(Fate::of(&config, tag), Fate::of(&config.clone(), tag));
        }
        assert!(tags.iter().any(|t| Fate::of(&config, t) != Fate::of(&other, t)));
    }
}
