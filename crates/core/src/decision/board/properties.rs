//! Properties of the board over random changes: its indexes always say what its instances say, limits hold, nothing that
//! could start is left out, and nobody starves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation)]

use proptest::prelude::*;

use super::tests::{READY, Setting, at, ids, start, waiting};
use super::*;
use crate::model::instance::{CancelAsked, WaitReason};

/// One random change of a board.
#[derive(Clone, Debug)]
enum Op {
    Put { n_table: u32, action: usize, instant: u32, queue: usize, wanted: usize, state: usize, passed: u32 },
    Change { which: usize, state: usize },
    Cancel { which: usize },
    Remove { which: usize },
    Choose { n_max: usize, running_max: u32, limit: u32, is_paused: bool },
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0_u32..4, 0_usize..4, 0_u32..5, 0_usize..3, 0_usize..4, 0_usize..7, 0_u32..4).prop_map(
            |(n_table, action, instant, queue, wanted, state, passed)| Op::Put {
                n_table, action, instant, queue, wanted, state, passed,
            }
        ),
        3 => (0_usize..64, 0_usize..7).prop_map(|(which, state)| Op::Change { which, state }),
        1 => (0_usize..64).prop_map(|which| Op::Cancel { which }),
        1 => (0_usize..64).prop_map(|which| Op::Remove { which }),
        4 => (0_usize..6, 0_u32..5, 0_u32..3, any::<bool>()).prop_map(
            |(n_max, running_max, limit, is_paused)| Op::Choose { n_max, running_max, limit, is_paused }
        ),
    ]
}

fn with_state(mut instance: Instance, state: usize, now: i64) -> Instance {
    instance.attempt = None;
    instance.state = match state {
        0 => InstanceState::Hinted,
        1 | 2 => READY,
        3 => InstanceState::Pending { reason: WaitReason::Backoff, not_before: Some(at(now + 3)) },
        4 => InstanceState::WaitingForeign { since: at(now), sign: None },
        5 => return start(instance, &EngineName::default()),
        _ => InstanceState::Failed,
    };
    instance
}

fn check_choice(board: &Board, setting: &Setting, chosen: &Chosen, now: i64) {
    let mut by_queue: BTreeMap<QueueName, u32> = BTreeMap::new();
    let mut by_engine: BTreeMap<EngineName, u32> = BTreeMap::new();
    for running in board.instances.values().filter(|i| is_busy(i)) {
        *by_queue.entry(running.queue.clone()).or_default() += 1;
        *by_engine.entry(running.attempt.as_ref().unwrap().engine.clone()).or_default() += 1;
    }
    let mut tables = BTreeSet::new();
    for choice in &chosen.start {
        let instance = board.get(choice.id).unwrap();
        assert!(tables.insert(instance.key.table), "one live attempt per table");
        assert!(board.of_table(instance.key.table).all(|other| !is_busy(other)));
        assert!(instance.cancel_asked.is_none());
        match instance.state {
            InstanceState::Pending { not_before, .. } => {
                assert!(not_before.is_none_or(|time| time <= at(now)))
            }
            _ => panic!("only pending ones start"),
        }
        assert_eq!(engine_for(instance, &setting.limits()).as_ref(), Some(&choice.engine));
        *by_queue.entry(instance.queue.clone()).or_default() += 1;
        let running = by_engine.entry(choice.engine.clone()).or_default();
        *running += 1;
        assert!(*running <= setting.engines[&choice.engine].running_max);
        if let Some(queue) = setting.queues.get(&instance.queue) {
            assert!(!queue.is_paused);
            assert!(queue.limit == 0 || by_queue[&queue.name] <= queue.limit);
        }
        for passed in &choice.passed_over {
            let passed = board.get(*passed).unwrap();
            assert_eq!(passed.key.table, instance.key.table);
            assert_ne!(passed.key.action, instance.key.action);
        }
    }
}

/// Nothing that could start is left out: each one that waits has a reason.
fn check_nothing_is_left(board: &Board, setting: &Setting, chosen: &Chosen, now: i64) {
    let started: BTreeSet<InstanceId> = ids(chosen).into_iter().collect();
    let limits = setting.limits();
    let mut after = Board::new();
    for instance in board.instances.values() {
        let mut instance = (**instance).clone();
        if started.contains(&instance.id) {
            let engine = engine_for(&instance, &limits).unwrap();
            instance = start(instance, &engine);
        }
        after.put(instance);
    }
    after.take_up_due(at(now));
    for instance in after.instances.values().filter(|i| may_start(i).is_some()) {
        let why = after.why_waiting(instance.id, &limits, at(now)).unwrap();
        assert_ne!(why.cause, WaitCause::Turn, "{}", instance.id);
        if let WaitCause::PassedOver { by } = why.cause {
            let kept_for = after.why_waiting(by, &limits, at(now)).unwrap().cause;
            let is_full = matches!(kept_for, WaitCause::QueueFull { .. } | WaitCause::EngineFull { .. });
            assert!(is_full, "{by}: {kept_for:?}");
        }
    }
}

/// A board that was changed step by step says what one says that was just built from the same instances, due times
/// included (case C7).
fn check_against_rebuilt(board: &mut Board, setting: &Setting, now: i64, n_max: usize) {
    let mut rebuilt = Board::new();
    let mut instances: Vec<Instance> = board.instances.values().map(|i| (**i).clone()).collect();
    instances.sort_by_key(|i| i.id);
    for instance in instances {
        rebuilt.put(instance);
    }
    let chosen = board.choose(&setting.limits(), at(now), n_max);
    assert_eq!(chosen.start, rebuilt.choose(&setting.limits(), at(now), n_max).start);
    check_choice(board, setting, &chosen, now);
    if chosen.start.len() < n_max {
        check_nothing_is_left(board, setting, &chosen, now);
    }
    assert_eq!(board.counts(), rebuilt.counts());
    assert_eq!(board.by_state, rebuilt.by_state);
    assert_eq!(board.by_table, rebuilt.by_table);
    assert_eq!(board.busy, rebuilt.busy);
    assert_eq!(board.cancel_asked, rebuilt.cancel_asked);
    assert_eq!(board.running.by_share, rebuilt.running.by_share);
    assert_eq!(board.running.by_queue, rebuilt.running.by_queue);
    assert_eq!(board.due, rebuilt.due);
    assert_eq!(board.waiting.len(), rebuilt.waiting.len());
    assert_eq!(board.placed.len(), rebuilt.placed.len());
    assert_eq!(board.lanes.len(), rebuilt.lanes.len());
    for instance in board.instances.values() {
        assert!(
            board.why_waiting(instance.id, &setting.limits(), at(now)).is_some() || instance.state.is_ended()
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn indexes_say_what_the_instances_say(ops in prop::collection::vec(any_op(), 1..60)) {
        let mut board = Board::new();
        let mut known: Vec<InstanceId> = Vec::new();
        for (now, op) in (0..).zip(ops) {
            let pick = |which: usize| known.get(which % known.len().max(1)).copied();
            match op {
                Op::Put { n_table, action, instant, queue, wanted, state, passed } => {
                    let mut instance = waiting(n_table, Action::ALL[action], instant, now);
                    instance.queue = ["default", "a", "b"][queue].parse().unwrap();
                    instance.execution_engine =
                        [None, Some("spark"), Some("other"), Some("flink")][wanted].map(str::to_owned);
                    instance.n_passed_over = passed;
                    if board.of_table(instance.key.table).any(|other| other.key == instance.key) {
                        continue;
                    }
                    known.push(instance.id);
                    board.put(with_state(instance, state, now));
                }
                Op::Change { which, state } => {
                    if let Some(old) = pick(which).and_then(|id| board.get(id)).cloned() {
                        board.put(with_state(old, state, now));
                    }
                }
                Op::Cancel { which } => {
                    if let Some(mut old) = pick(which).and_then(|id| board.get(id)).cloned() {
                        old.cancel_asked = Some(CancelAsked { by: "me".to_owned(), at: at(now) });
                        board.put(old);
                    }
                }
                Op::Remove { which } => {
                    if let Some(id) = pick(which) {
                        board.remove(id);
                    }
                }
                Op::Choose { n_max, running_max, limit, is_paused } => {
                    let mut setting = Setting::new(running_max).queue("a", limit, 2).queue("b", 0, 1);
                    let other = EngineLimit { running_max: 1, families: &["other"], is_simulation: false };
                    setting.engines.insert("other".parse().unwrap(), other);
                    setting.pause("b", is_paused);
                    check_against_rebuilt(&mut board, &setting, now, n_max);
                }
            }
        }
    }

    /// Work keeps coming to few places; whoever waits gets its turn after a bounded number of others.
    #[test]
    fn nobody_starves(
        running_max in 1_u32..3,
        weights in (1_u32..50, 1_u32..50),
        arrivals in prop::collection::vec((0_u32..4, 0_usize..4, -3_i32..4), 20..80),
    ) {
        let setting = Setting::new(running_max).queue("a", 0, weights.0).queue("b", 1, weights.1);
        let mut board = Board::new();
        // The waits of one place in rounds: all that arrive before it, all of higher priority later, and one step for each
        // action of its table.
        let rounds_max = arrivals.len() * 2 + 20;
        let mut since: BTreeMap<InstanceId, usize> = BTreeMap::new();
        for round in 0..arrivals.len() * 4 {
            let now = i64::try_from(round).unwrap() * 60;
            if let Some((n_table, action, priority)) = arrivals.get(round % arrivals.len()) {
                let mut instance = waiting(*n_table, Action::ALL[*action], round as u32, now);
                instance.queue = if n_table % 2 == 0 { "a" } else { "b" }.parse().unwrap();
                instance.priority = *priority;
                // Half of the work comes while the other half is served, so the board does not just grow.
                if round % 2 == 0 {
                    since.insert(instance.id, round);
                    board.put(instance);
                }
            }
            let chosen = board.choose(&setting.limits(), at(now), 10);
            for choice in chosen.start {
                let waited = round - since.remove(&choice.id).unwrap();
                prop_assert!(waited <= rounds_max, "waited {waited} rounds");
                for id in choice.passed_over {
                    let mut passed = board.get(id).unwrap().clone();
                    passed.n_passed_over += 1;
                    prop_assert!(passed.n_passed_over <= PASSED_OVER_MAX);
                    board.put(passed);
                }
                board.remove(choice.id);
            }
            for (id, from) in &since {
                prop_assert!(round - from <= rounds_max, "{id} waits since {from} in round {round}");
            }
        }
    }
}
