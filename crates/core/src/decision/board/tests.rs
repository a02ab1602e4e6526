//! Tests of the board: order, limits, shares, reasons, cost.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation)]

use chrono::DateTime;

use super::*;
use crate::model::attempt::{Attempt, AttemptState, Expected, Holder, Launcher};
use crate::model::id::{Incarnation, Tag, Term};
use crate::model::instance::{CancelAsked, InstanceKey, ParkReason, WaitReason};
use crate::model::queue::Queue;
use crate::model::request::Trigger;

pub(super) fn at(seconds: i64) -> Timestamp {
    DateTime::from_timestamp(1_800_000_000 + seconds, 0).unwrap()
}

pub(super) fn table(n: u32) -> TableId {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&n.to_be_bytes());
    TableId::from_bytes(bytes)
}

pub(super) const READY: InstanceState =
    InstanceState::Pending { reason: WaitReason::Ready, not_before: None };

pub(super) fn waiting(n_table: u32, action: Action, instant: u32, created: i64) -> Instance {
    let instant = (action != Action::Clean).then(|| format!("{instant:017}").parse().unwrap());
    let key = InstanceKey { table: table(n_table), action, instant };
    Instance::new(key, READY, Trigger::Callback, at(created))
}

/// Gives an instance a live attempt, as after its submission.
pub(super) fn start(mut instance: Instance, engine: &EngineName) -> Instance {
    instance.n_attempts += 1;
    instance.n_passed_over = 0;
    instance.state = InstanceState::Active;
    instance.attempt = Some(Box::new(Attempt {
        number: instance.n_attempts,
        tag: Tag::of(&Incarnation("00000000".to_owned()), instance.id, instance.n_attempts),
        engine: engine.clone(),
        launcher: Launcher::Simulated,
        state: AttemptState::Accepted,
        holder: Holder::None,
        holder_place: None,
        term: Term(1),
        token_hash: String::new(),
        handle: None,
        expected: Expected::Requested,
        takes: None,
        versions: None,
        baseline: None,
        rollbacks_before: None,
        intended_at: instance.created_at,
        called_at: None,
        accepted_at: None,
        leave_at: None,
        call_at: None,
        heard_at: None,
        ended_at: None,
        over_at: None,
        proof: None,
        engine_word: None,
        progress: None,
        report: None,
        end: None,
        n_kills: 0,
        is_restored: false,
    }));
    instance
}

/// Queues and engines of a test.
pub(super) struct Setting {
    pub(super) queues: BTreeMap<QueueName, Queue>,
    pub(super) engines: BTreeMap<EngineName, EngineLimit>,
}

impl Setting {
    pub(super) fn new(running_max: u32) -> Self {
        let engine = EngineLimit { running_max, families: &["spark"], is_simulation: false };
        Self { queues: BTreeMap::new(), engines: BTreeMap::from([(EngineName::default(), engine)]) }
    }

    pub(super) fn queue(mut self, name: &str, limit: u32, weight: u32) -> Self {
        let name: QueueName = name.parse().unwrap();
        let queue = Queue { limit, weight, ..Queue::new(name.clone()) };
        self.queues.insert(name, queue);
        self
    }

    pub(super) fn pause(&mut self, name: &str, is_paused: bool) {
        self.queues.get_mut(&name.parse().unwrap()).unwrap().is_paused = is_paused;
    }

    pub(super) fn limits(&self) -> Limits<'_> {
        Limits { queues: &self.queues, engines: &self.engines }
    }
}

fn board_of(instances: &[Instance]) -> Board {
    let mut board = Board::new();
    for instance in instances {
        board.put(instance.clone());
    }
    board
}

pub(super) fn ids(chosen: &Chosen) -> Vec<InstanceId> {
    chosen.start.iter().map(|choice| choice.id).collect()
}

#[test]
fn one_instance_per_table_starts_and_clustering_goes_first() {
    let clean = waiting(1, Action::Clean, 0, 0);
    let newer = waiting(1, Action::Compaction, 8, 0);
    let older = waiting(1, Action::Compaction, 7, 5);
    let clustering = waiting(1, Action::Clustering, 9, 9);
    let mut board = board_of(&[clean.clone(), newer.clone(), older.clone(), clustering.clone()]);
    let setting = Setting::new(10);
    let mut order = Vec::new();
    for _ in 0..4 {
        let chosen = board.choose(&setting.limits(), at(10), 10);
        assert_eq!(chosen.start.len(), 1);
        let choice = &chosen.start[0];
        order.push((choice.id, choice.passed_over.clone()));
        let started = start(board.get(choice.id).unwrap().clone(), &choice.engine);
        board.put(started);
        assert!(board.choose(&setting.limits(), at(10), 10).start.is_empty(), "the table is busy");
        board.remove(choice.id);
    }
    let expected = [
        (clustering.id, vec![older.id, clean.id]),
        (older.id, vec![clean.id]),
        (newer.id, vec![clean.id]),
        (clean.id, vec![]),
    ];
    assert_eq!(order, expected);
}

#[test]
fn clean_is_passed_over_three_times_at_most() {
    let setting = Setting::new(10);
    let clean = waiting(1, Action::Clean, 0, 0);
    let mut board = board_of(std::slice::from_ref(&clean));
    for n in 0..4 {
        board.put(waiting(1, Action::Compaction, n, 0));
    }
    for n in 0..4 {
        let chosen = board.choose(&setting.limits(), at(0), 1);
        let choice = chosen.start[0].clone();
        assert_eq!(choice.id == clean.id, n == 3);
        board.remove(choice.id);
        for id in choice.passed_over {
            let mut passed = board.get(id).unwrap().clone();
            passed.n_passed_over += 1;
            board.put(passed);
        }
    }
}

#[test]
fn queue_and_engine_limits_hold() {
    let setting = Setting::new(3).queue("a", 2, 1).queue("b", 0, 1);
    let mut board = Board::new();
    for n in 0..10 {
        let mut instance = waiting(n, Action::Compaction, 1, i64::from(n));
        instance.queue = if n < 5 { "a" } else { "b" }.parse().unwrap();
        board.put(instance);
    }
    let chosen = board.choose(&setting.limits(), at(20), 100);
    let queues: Vec<&str> = chosen.start.iter().map(|c| board.get(c.id).unwrap().queue.as_str()).collect();
    assert_eq!(queues, ["a", "b", "a"]);
    for choice in &chosen.start {
        let started = start(board.get(choice.id).unwrap().clone(), &choice.engine);
        board.put(started);
    }
    assert_eq!(board.running_of_engine(&EngineName::default()), 3);
    assert_eq!(board.running_of_queue(&"a".parse().unwrap()), 2);
    assert!(board.choose(&setting.limits(), at(20), 100).start.is_empty());
}

#[test]
fn suspect_unknown_and_succeeding_attempts_keep_their_places() {
    let setting = Setting::new(3);
    let mut board = Board::new();
    let states = [AttemptState::Suspect, AttemptState::Unknown, AttemptState::Holding];
    for (n, state) in (0..).zip(states) {
        let mut instance = start(waiting(n, Action::Compaction, 1, 0), &EngineName::default());
        instance.attempt.as_mut().unwrap().state = state;
        if state == AttemptState::Holding {
            instance.state = InstanceState::Succeeding;
        }
        board.put(instance);
    }
    board.put(waiting(9, Action::Compaction, 1, 0));
    assert!(board.choose(&setting.limits(), at(0), 1).start.is_empty());
    assert_eq!(board.with_live_attempt().count(), 3);
}

#[test]
fn weights_share_a_full_engine() {
    let setting = Setting::new(8).queue("heavy", 0, 3).queue("light", 0, 1);
    let mut board = Board::new();
    for n in 0..40 {
        let mut instance = waiting(n, Action::Compaction, 1, i64::from(n));
        instance.queue = if n < 20 { "light" } else { "heavy" }.parse().unwrap();
        board.put(instance);
    }
    let chosen = board.choose(&setting.limits(), at(50), 100);
    let heavy = chosen.start.iter().filter(|c| board.get(c.id).unwrap().queue.as_str() == "heavy").count();
    assert_eq!((heavy, chosen.start.len()), (6, 8));
}

#[test]
fn paused_queues_start_nothing_and_hold_nobody_else_back() {
    let mut setting = Setting::new(8).queue("a", 0, 1).queue("b", 0, 1);
    let mut clustering = waiting(1, Action::Clustering, 1, 0);
    clustering.queue = "a".parse().unwrap();
    clustering.n_passed_over = PASSED_OVER_MAX;
    let mut compaction = waiting(1, Action::Compaction, 2, 0);
    compaction.queue = "b".parse().unwrap();
    let mut board = board_of(&[clustering.clone(), compaction.clone()]);
    setting.pause("a", true);
    let chosen = board.choose(&setting.limits(), at(0), 5);
    assert_eq!(ids(&chosen), [compaction.id]);
    assert!(chosen.start[0].passed_over.is_empty(), "a paused queue is not passed over");
    setting.pause("a", false);
    assert_eq!(ids(&board.choose(&setting.limits(), at(0), 5)), [clustering.id]);
}

#[test]
fn a_table_is_kept_for_an_instance_whose_queue_is_full() {
    let setting = Setting::new(8).queue("a", 1, 1).queue("b", 0, 1);
    let mut running = start(waiting(7, Action::Compaction, 1, 0), &EngineName::default());
    running.queue = "a".parse().unwrap();
    let mut clean = waiting(1, Action::Clean, 0, 0);
    clean.queue = "a".parse().unwrap();
    clean.n_passed_over = PASSED_OVER_MAX;
    let mut compaction = waiting(1, Action::Compaction, 2, 0);
    compaction.queue = "b".parse().unwrap();
    let mut board = board_of(&[running.clone(), clean.clone(), compaction.clone()]);
    assert!(board.choose(&setting.limits(), at(0), 5).start.is_empty());
    let why = board.why_waiting(compaction.id, &setting.limits(), at(0)).unwrap();
    assert_eq!(why.cause, WaitCause::PassedOver { by: clean.id });
    board.remove(running.id);
    assert_eq!(ids(&board.choose(&setting.limits(), at(0), 5)), [clean.id]);
}

#[test]
fn waiting_weighs_as_much_as_priority() {
    let mut high = waiting(1, Action::Compaction, 1, AGEING_STEP_MS / 1000 - 1);
    high.priority = 1;
    let low = waiting(2, Action::Compaction, 1, 0);
    let mut later = waiting(3, Action::Compaction, 1, AGEING_STEP_MS / 1000 + 1);
    later.priority = 1;
    let mut greedy = waiting(4, Action::Compaction, 1, AGEING_STEP_MS / 1000 * (i64::from(PRIORITY_MAX) + 1));
    greedy.priority = i32::MAX;
    let mut board = board_of(&[high.clone(), low.clone(), later.clone(), greedy.clone()]);
    let chosen = board.choose(&Setting::new(9).limits(), at(10_000_000), 9);
    assert_eq!(ids(&chosen), [high.id, low.id, later.id, greedy.id]);
}

#[test]
fn back_off_is_waited_for_and_counts_as_new_age() {
    let setting = Setting::new(1);
    let mut retried = waiting(1, Action::Compaction, 1, 0);
    retried.state = InstanceState::Pending { reason: WaitReason::Backoff, not_before: Some(at(100)) };
    let fresh = waiting(2, Action::Compaction, 1, 90);
    let mut board = board_of(&[retried.clone(), fresh.clone()]);
    assert_eq!(board.next_due(at(0)), Some(at(100)));
    assert_eq!(board.due_after(at(99), 9), [retried.id]);
    assert_eq!((board.due_after(at(100), 9), board.due_after(at(99), 0)), (Vec::new(), Vec::new()));
    assert_eq!(ids(&board.choose(&setting.limits(), at(99), 9)), [fresh.id]);
    assert_eq!(board.next_due(at(200)), Some(at(200)));
    let chosen = board.choose(&setting.limits(), at(200), 9);
    assert_eq!(ids(&chosen), [fresh.id], "what fails again and again stands behind");
    assert_eq!(board.next_due(at(200)), None);
    board.remove(fresh.id);
    assert_eq!(ids(&board.choose(&setting.limits(), at(200), 9)), [retried.id]);
    board.put(retried.clone());
    assert_eq!(ids(&board.choose(&setting.limits(), at(200), 9)), [retried.id]);
}

#[test]
fn what_no_engine_takes_is_reported_and_blocks_nobody() {
    let setting = Setting::new(1);
    let mut odd = waiting(1, Action::Clustering, 1, 0);
    odd.execution_engine = Some("presto".to_owned());
    let fine = waiting(1, Action::Compaction, 1, 0);
    let mut board = board_of(&[odd.clone(), fine.clone()]);
    let chosen = board.choose(&setting.limits(), at(0), 9);
    assert_eq!((ids(&chosen), chosen.no_engine), (vec![fine.id], vec![odd.id]));
    let why = board.why_waiting(odd.id, &setting.limits(), at(0)).unwrap();
    assert_eq!(why.to_string(), "no configured engine is \"presto\" or serves it");
}

#[test]
fn a_reservation_keeps_table_queue_and_engine_until_it_is_released() {
    let setting = Setting::new(2).queue("a", 1, 1);
    let mut first = waiting(1, Action::Compaction, 1, 0);
    first.queue = "a".parse().unwrap();
    let mate = waiting(1, Action::Clean, 0, 0);
    let mut same_queue = waiting(2, Action::Compaction, 1, 0);
    same_queue.queue = "a".parse().unwrap();
    let mut board = board_of(&[first.clone(), mate, same_queue.clone()]);
    let choice = board.choose(&setting.limits(), at(0), 1).start.remove(0);
    assert_eq!(choice.id, first.id);
    board.reserve(first.id, &choice.engine);
    board.put(first.clone());
    assert!(board.choose(&setting.limits(), at(0), 9).start.is_empty());
    assert_eq!(board.with_live_attempt().count(), 0);
    assert_eq!(board.running_of_engine(&choice.engine), 1);
    let why = board.why_waiting(same_queue.id, &setting.limits(), at(0)).unwrap();
    assert_eq!(why.to_string(), "the queue a is full: 1 of 1 running");
    let why = board.why_waiting(first.id, &setting.limits(), at(0)).unwrap();
    assert_eq!(why.cause, WaitCause::Starting);
    board.put(start(first.clone(), &choice.engine));
    board.release(first.id);
    assert_eq!(board.running_of_engine(&choice.engine), 1, "the attempt keeps the place");
    board.put(first.clone());
    assert_eq!(board.running_of_engine(&choice.engine), 0);
    board.reserve(first.id, &choice.engine);
    board.release(first.id);
    assert_eq!(ids(&board.choose(&setting.limits(), at(0), 1)), [first.id]);
    board.reserve(first.id, &choice.engine);
    board.remove(first.id);
    assert_eq!((board.running_of_engine(&choice.engine), board.busy_with(table(1))), (0, None));
}

#[test]
fn ended_instances_leave_the_board_once_their_attempt_does() {
    let mut instance = start(waiting(1, Action::Compaction, 1, 0), &EngineName::default());
    let mut board = board_of(std::slice::from_ref(&instance));
    instance.state = InstanceState::Failed;
    board.put(instance.clone());
    assert_eq!((board.len(), board.with_live_attempt().count()), (1, 1));
    instance.attempt.as_mut().unwrap().state = AttemptState::Over;
    board.put(instance.clone());
    assert!(board.is_empty() && board.counts().is_empty());
    assert_eq!(board.remove(instance.id), None);
}

/// Case C20.
#[test]
fn each_reason_to_wait_is_told() {
    let mut setting = Setting::new(1).queue("a", 1, 1).queue("p", 0, 1);
    setting.pause("p", true);
    let mut board = Board::new();
    let check = |instance: &Instance, board: &Board, expected: &str| {
        let why = board.why_waiting(instance.id, &setting.limits(), at(0)).unwrap();
        assert_eq!(why.to_string(), expected);
    };
    let put = |board: &mut Board, n: u32, change: &dyn Fn(&mut Instance)| {
        let mut instance = waiting(n, Action::Compaction, 1, 0);
        change(&mut instance);
        board.put(instance.clone());
        instance
    };

    let hinted = put(&mut board, 1, &|i| i.state = InstanceState::Hinted);
    check(&hinted, &board, "a look at the table has to see its plan");
    let foreign =
        put(&mut board, 2, &|i| i.state = InstanceState::WaitingForeign { since: at(0), sign: Some(at(-5)) });
    check(&foreign, &board, "somebody else seems to run it; newest sign of life 2027-01-15T07:59:55Z");
    let parked = put(&mut board, 3, &|i| {
        i.state = InstanceState::Parked {
            reason: ParkReason::BadOption,
            detail: "hoodie.x has a comma".to_owned(),
            since: at(0),
        };
    });
    check(
        &parked,
        &board,
        "parked (bad_option): hoodie.x has a comma; to release it: correct the hudi.options of the configuration or of the table",
    );
    let backoff = put(&mut board, 4, &|i| {
        i.state = InstanceState::Pending { reason: WaitReason::Backoff, not_before: Some(at(60)) };
    });
    check(&backoff, &board, "an attempt failed; the back-off runs (until 2027-01-15T08:01:00Z)");
    let cancelled =
        put(&mut board, 5, &|i| i.cancel_asked = Some(CancelAsked { by: "me".to_owned(), at: at(0) }));
    check(&cancelled, &board, "it is being cancelled");
    let paused = put(&mut board, 6, &|i| i.queue = "p".parse().unwrap());
    check(&paused, &board, "the queue p is paused");
    let ready = put(&mut board, 7, &|_| ());
    check(&ready, &board, "nothing; it starts at the next pass");
    let clustering = waiting(7, Action::Clustering, 1, 0);
    board.put(clustering.clone());
    check(&ready, &board, &format!("instance {} of the same table goes first", clustering.id));
    let queued = put(&mut board, 8, &|i| i.queue = "a".parse().unwrap());
    let running = start(waiting(9, Action::Compaction, 1, 0), &EngineName::default());
    board.put(running.clone());
    check(&running, &board, "its job runs");
    check(&queued, &board, "the engine default is full: 1 of 1 running");
    let mut in_queue = running.clone();
    in_queue.queue = "a".parse().unwrap();
    board.put(in_queue);
    check(&queued, &board, "the queue a is full: 1 of 1 running");
    let behind = put(&mut board, 9, &|i| i.key.action = Action::Clean);
    check(&behind, &board, &format!("the table is busy with instance {}", running.id));
    assert_eq!(board.why_waiting(InstanceId::new(), &setting.limits(), at(0)), None);
}

#[test]
fn choosing_costs_what_is_chosen() {
    let setting = Setting::new(1_000_000).queue("small", 1, 1).queue("paused", 0, 1);
    let mut setting = setting;
    setting.pause("paused", true);
    let mut board = Board::new();
    for n in 0..20_000_u32 {
        let mut instance = waiting(n, Action::Compaction, 1, i64::from(n));
        instance.queue = ["default", "small", "paused"][n as usize % 3].parse().unwrap();
        board.put(instance);
    }
    for n_max in [0, 1, 100] {
        let chosen = board.choose(&setting.limits(), at(0), n_max);
        assert_eq!(chosen.start.len(), n_max);
        assert!(chosen.n_visited <= SKIPS + n_max, "{}", chosen.n_visited);
    }
    let full = Setting::new(0);
    assert_eq!(board.choose(&full.limits(), at(0), 100), Chosen::default());
}

const SKIPS: usize = choose::SKIPS_MAX;

#[test]
fn ended_back_offs_are_taken_up_in_steps() {
    let mut board = Board::new();
    let n_all = DUE_MOVES_MAX as u32 + 10;
    for n in 0..n_all {
        let mut instance = waiting(n, Action::Compaction, 1, 0);
        instance.state = InstanceState::Pending { reason: WaitReason::Backoff, not_before: Some(at(1)) };
        board.put(instance);
    }
    let setting = Setting::new(1_000_000);
    assert_eq!(board.choose(&setting.limits(), at(5), usize::MAX).start.len(), DUE_MOVES_MAX);
    assert_eq!(board.next_due(at(5)), Some(at(5)), "more is due now");
    assert_eq!(board.choose(&setting.limits(), at(5), usize::MAX).start.len(), n_all as usize);
}
