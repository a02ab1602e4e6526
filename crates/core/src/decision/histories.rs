//! Random histories of a small world: writers, a leader, an engine, drivers and a timeline, with every fault that the
//! decisions are made for. The world keeps its own record of who touches a table; the decisions never see it.
//!
//! Cases C2, C3, C7, C11 and C13 are among the histories. What must hold after every event stands in [`World::check`]; once the faults stop, everything must reach an end.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod leader;
mod world;

use proptest::prelude::*;

use crate::decision::histories::world::{EngineMood, SubmitMood, World};

/// Tables of the world.
const TABLES: u8 = 3;
/// Rounds of one minute within which a calm world ends whatever waits for nothing but time: the longest back-off, a grace
/// and a silence.
const CALM_ROUNDS_MAX: usize = 100;
/// Further rounds for each instance, since all may stand on one table.
const ROUNDS_PER_INSTANCE_MAX: usize = 5;

/// One event. Numbers choose among what exists.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A writer plans a service, and says so or not.
    Plan { table: u8, action: u8, hinted: bool },
    /// The leader looks at all tables.
    Look,
    /// The leader chooses and submits; the engine answers in this mood.
    Pass(SubmitMood),
    /// The leader watches its attempts.
    Monitor,
    /// A driver takes its next step.
    Step { driver: u8, luck: u8 },
    /// A driver is killed.
    Kill { driver: u8 },
    /// A second driver of some attempt starts.
    Double { driver: u8 },
    /// A submission whose answer was lost starts after all.
    StartLate { which: u8 },
    /// The leader dies between storing an intent and calling the engine, or right after the call; the next one takes over.
    Crash { is_called: bool },
    /// The leader dies; the next one takes over.
    Restart,
    /// A person cancels an instance.
    Cancel { which: u8 },
    /// A person tries an ended or parked instance again.
    Retry { which: u8 },
    /// A writer rolls a plan back.
    Vanish { which: u8 },
    /// Somebody else completes a plan.
    CompleteElsewhere { which: u8 },
    /// The engine's mood changes.
    Engine(EngineMood),
    /// The tables can be read, or cannot.
    Readable(bool),
    /// The queue is paused, or goes on.
    Pause(bool),
    /// Time passes.
    Wait { seconds: u16 },
}

fn any_event() -> impl Strategy<Value = Event> {
    let submit = prop_oneof![
        4 => Just(SubmitMood::Accept),
        1 => Just(SubmitMood::AcceptQueued),
        1 => Just(SubmitMood::LoseAfterStart),
        1 => Just(SubmitMood::LoseBeforeStart),
        1 => Just(SubmitMood::LoseAndStartLate),
        1 => Just(SubmitMood::Refuse),
    ];
    let mood = prop_oneof![
        4 => Just(EngineMood::Honest),
        1 => Just(EngineMood::Unreachable),
        1 => Just(EngineMood::Forgetful),
        1 => Just(EngineMood::Stubborn),
        1 => Just(EngineMood::ForeignTag),
    ];
    let faults = prop_oneof![
        any::<u8>().prop_map(|driver| Event::Kill { driver }),
        any::<u8>().prop_map(|driver| Event::Double { driver }),
        any::<u8>().prop_map(|which| Event::StartLate { which }),
        any::<bool>().prop_map(|is_called| Event::Crash { is_called }),
        Just(Event::Restart),
        any::<u8>().prop_map(|which| Event::Cancel { which }),
        any::<u8>().prop_map(|which| Event::Retry { which }),
        any::<u8>().prop_map(|which| Event::Vanish { which }),
        any::<u8>().prop_map(|which| Event::CompleteElsewhere { which }),
        mood.prop_map(Event::Engine),
        any::<bool>().prop_map(Event::Readable),
        any::<bool>().prop_map(Event::Pause),
    ];
    prop_oneof![
        3 => (0..TABLES, any::<u8>(), any::<bool>())
            .prop_map(|(table, action, hinted)| Event::Plan { table, action, hinted }),
        3 => Just(Event::Look),
        4 => submit.prop_map(Event::Pass),
        4 => Just(Event::Monitor),
        8 => (any::<u8>(), any::<u8>()).prop_map(|(driver, luck)| Event::Step { driver, luck }),
        4 => faults,
        2 => (0_u16..900).prop_map(|seconds| Event::Wait { seconds }),
    ]
}

fn play(world: &mut World, event: Event) {
    match event {
        Event::Plan { table, action, hinted } => world.plan(table, action, hinted),
        Event::Look => world.look(),
        Event::Pass(mood) => world.pass(mood),
        Event::Monitor => world.monitor(),
        Event::Step { driver, luck } => world.step_driver(driver, luck),
        Event::Kill { driver } => world.kill(driver),
        Event::Double { driver } => world.start_double(driver),
        Event::StartLate { which } => world.start_late(which),
        Event::Crash { is_called } => world.crash_while_submitting(is_called),
        Event::Restart => world.restart(),
        Event::Cancel { which } => world.cancel(which),
        Event::Retry { which } => world.retry(which),
        Event::Vanish { which } => world.vanish(which),
        Event::CompleteElsewhere { which } => world.complete_elsewhere(which),
        Event::Engine(mood) => world.engine_mood = mood,
        Event::Readable(is_readable) => world.is_readable = is_readable,
        Event::Pause(is_paused) => world.pause(is_paused),
        Event::Wait { seconds } => world.wait(i64::from(seconds)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn no_history_breaks_the_rules_and_each_one_ends(events in prop::collection::vec(any_event(), 1..160)) {
        let mut world = World::new();
        for event in events {
            play(&mut world, event);
            world.check();
        }
        world.calm_down();
        let rounds_max = CALM_ROUNDS_MAX + ROUNDS_PER_INSTANCE_MAX * world.store.len();
        let mut rounds = 0;
        while !world.is_at_rest() {
            prop_assert!(rounds < rounds_max, "still not at rest: {}", world.shown());
            world.calm_round();
            world.check();
            rounds += 1;
        }
        world.check_end();
    }
}

/// The world itself is worth something only if it does real work and meets its faults.
#[test]
fn the_plain_history_completes_its_plan() {
    let mut world = World::new();
    play(&mut world, Event::Plan { table: 0, action: 0, hinted: true });
    play(&mut world, Event::Look);
    play(&mut world, Event::Pass(SubmitMood::Accept));
    for _ in 0..8 {
        play(&mut world, Event::Step { driver: 0, luck: 1 });
        world.check();
    }
    play(&mut world, Event::Monitor);
    assert!(world.is_at_rest(), "{}", world.shown());
    world.check_end();
    assert_eq!(world.n_completed(), 1);
}

/// The rules are worth something only if breaking them is seen: a leader that frees the slot of a live driver is caught.
#[test]
fn a_slot_freed_too_early_is_seen() {
    let mut world = World::new();
    play(&mut world, Event::Plan { table: 0, action: 0, hinted: false });
    play(&mut world, Event::Look);
    play(&mut world, Event::Pass(SubmitMood::Accept));
    for _ in 0..3 {
        play(&mut world, Event::Step { driver: 0, luck: 0 });
    }
    world.check();
    world.free_slots_without_proof();
    let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.check()));
    assert!(seen.is_err());
}
