//! What goes first on one table: clustering, since its plan stops updates; then compactions, the oldest first; then others;
//! clean last; and none is passed over more than [`PASSED_OVER_MAX`] times.

use crate::model::action::{Action, Instant};

/// Times that an instance may see another action of its table go first. With four actions three is the smallest number that
/// can always be kept.
pub const PASSED_OVER_MAX: u32 = 3;

/// Returns the place of an action in the order, the smallest first.
pub(super) fn rank(action: Action) -> u8 {
    match action {
        Action::Clustering => 0,
        Action::Compaction => 1,
        Action::LogCompaction => 2,
        Action::Clean => 3,
    }
}

/// Returns a number that sorts as the instant's text does; work without an instant comes last.
///
/// Four bits per digit, from the left: a digit is 1 to 10 and the end is 0, so a prefix sorts before what it begins.
pub(super) fn sortable(instant: Option<&Instant>) -> u128 {
    const { assert!(Instant::DIGITS_MAX * 4 <= u128::BITS as usize) }
    let Some(instant) = instant else { return u128::MAX };
    let mut packed = 0_u128;
    for n in 0..Instant::DIGITS_MAX {
        let digit = instant.as_str().as_bytes().get(n).map_or(0, |byte| byte.saturating_sub(b'0') + 1);
        packed = packed << 4 | u128::from(digit & 0xf);
    }
    packed
}

/// The first waiting instance of one lane and action of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Contender {
    /// See [`rank`].
    pub(super) rank: u8,
    /// Times that it was passed over.
    pub(super) n_passed_over: u32,
    /// See [`sortable`].
    pub(super) instant: u128,
    /// There is room for it now; else its queue or engine is full.
    pub(super) is_open: bool,
}

/// Whose turn it is on one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// This one; the others, one per action, are passed over.
    Take { index: usize, passed_over: Vec<usize> },
    /// One that has no room now was passed over often enough: the table is kept for it.
    KeepFor { index: usize },
    /// There is room for none.
    NoRoom,
}

/// Contenders of one action.
struct Group {
    rank: u8,
    /// Times that it may still be passed over.
    n_left: u32,
    /// The one that is passed over when another action goes first.
    first: usize,
    first_open: Option<usize>,
}

/// Returns whose turn it is. `may_exceed` = rather pass one over once more than keep the table free for it.
///
/// An action goes first by its rank, as long as all others can still get their turn in time, each after the other.
pub(super) fn turn(contenders: &[Contender], may_exceed: bool) -> Turn {
    let groups = group(contenders);
    let in_time = |chosen: &Group| {
        let mut left: Vec<u32> = groups.iter().filter(|g| g.rank != chosen.rank).map(|g| g.n_left).collect();
        left.sort_unstable();
        left.iter().zip(1_u32..).all(|(n_left, place)| *n_left >= place)
    };
    let take = |group: &Group, index: usize| Turn::Take {
        index,
        passed_over: groups.iter().filter(|g| g.rank != group.rank).map(|g| g.first).collect(),
    };
    if let Some((group, index)) =
        groups.iter().filter(|g| in_time(g)).find_map(|g| g.first_open.map(|index| (g, index)))
    {
        return take(group, index);
    }
    let mut by_need: Vec<&Group> = groups.iter().collect();
    by_need.sort_by_key(|g| (g.n_left, g.rank));
    let open = by_need.iter().find_map(|g| g.first_open.map(|index| (*g, index)));
    match (by_need.first(), open) {
        (_, None) | (None, _) => Turn::NoRoom,
        (Some(neediest), Some(_)) if neediest.first_open.is_none() && !may_exceed => {
            Turn::KeepFor { index: neediest.first }
        }
        (_, Some((group, index))) => take(group, index),
    }
}

/// Returns the groups by rank.
fn group(contenders: &[Contender]) -> Vec<Group> {
    let mut places: Vec<usize> = (0..contenders.len()).collect();
    places.sort_by_key(|&n| {
        let c = &contenders[n];
        (c.rank, std::cmp::Reverse(c.n_passed_over), c.instant)
    });
    let mut groups: Vec<Group> = Vec::new();
    for n in places {
        let contender = &contenders[n];
        let open = contender.is_open.then_some(n);
        match groups.last_mut() {
            Some(group) if group.rank == contender.rank => group.first_open = group.first_open.or(open),
            _ => groups.push(Group {
                rank: contender.rank,
                n_left: PASSED_OVER_MAX.saturating_sub(contender.n_passed_over),
                first: n,
                first_open: open,
            }),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn contender(action: Action, n_passed_over: u32, is_open: bool) -> Contender {
        Contender { rank: rank(action), n_passed_over, instant: 0, is_open }
    }

    #[test]
    fn clustering_goes_first_and_clean_last() {
        let mut waiting: Vec<Contender> =
            [Action::Clean, Action::LogCompaction, Action::Compaction, Action::Clustering]
                .map(|a| contender(a, 0, true))
                .to_vec();
        let mut seen = Vec::new();
        while let Turn::Take { index, .. } = turn(&waiting, false) {
            seen.push(waiting.remove(index).rank);
        }
        assert_eq!(seen, [0, 1, 2, 3]);
    }

    #[test]
    fn a_table_is_kept_for_one_that_was_passed_over_often_enough() {
        let clean = contender(Action::Clean, PASSED_OVER_MAX, false);
        let compaction = contender(Action::Compaction, 0, true);
        assert_eq!(turn(&[compaction, clean], false), Turn::KeepFor { index: 1 });
        assert_eq!(turn(&[compaction, clean], true), Turn::Take { index: 0, passed_over: vec![1] });
        assert_eq!(turn(&[clean], false), Turn::NoRoom);
        assert_eq!(turn(&[], false), Turn::NoRoom);
    }

    proptest! {
        /// Each action has new work at random moments; each gets its turn after at most three others.
        #[test]
        fn none_is_passed_over_more_than_three_times(arrivals in prop::collection::vec(0_u8..16, 1..200)) {
            let mut waiting: Vec<Contender> = Vec::new();
            for arrived in arrivals {
                for (n, action) in Action::ALL.into_iter().enumerate() {
                    if arrived & (1 << n) != 0 && waiting.iter().all(|c| c.rank != rank(action)) {
                        waiting.push(contender(action, 0, true));
                    }
                }
                if let Turn::Take { index, passed_over } = turn(&waiting, false) {
                    prop_assert_eq!(passed_over.len(), waiting.len() - 1);
                    for n in passed_over {
                        waiting[n].n_passed_over += 1;
                        prop_assert!(waiting[n].n_passed_over <= PASSED_OVER_MAX);
                    }
                    waiting.remove(index);
                } else {
                    prop_assert!(waiting.is_empty());
                }
            }
        }

        #[test]
        fn sortable_instants_sort_as_their_texts(a in "[0-9]{1,32}", b in "[0-9]{1,32}") {
            let pack = |text: &str| sortable(text.parse::<Instant>().ok().as_ref());
            prop_assert_eq!(pack(&a).cmp(&pack(&b)), a.cmp(&b));
            prop_assert!(pack(&a) < sortable(None));
        }
    }
}
