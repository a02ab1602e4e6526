//! Every way in which an attempt can look alive or dead.

use tms_core::model::id::{Incarnation, InstanceId, Tag};

use super::*;

fn here() -> Place {
    Place {
        boot: "b1".to_owned(),
        pid_namespace: "pid:[1]".to_owned(),
        user: 1000,
        host: "h1".to_owned(),
        machine: Some("m1/h1".to_owned()),
    }
}

fn claim() -> WrapperClaim {
    WrapperClaim {
        tag: Tag::of(&Incarnation("0a1b2c3d".to_owned()), InstanceId::new(), 1),
        place: here(),
        session: 100,
        wrapper: ProcessMark { pid: 100, start: 5 },
    }
}

const JVM: ProcessMark = ProcessMark { pid: 101, start: 6 };

fn process(pid: u32, start: u64, session: u32) -> ProcessSeen {
    ProcessSeen { mark: ProcessMark { pid, start }, session, is_zombie: false }
}

fn check(processes: &[ProcessSeen], is_ours: Option<bool>, expected_alive: bool) {
    let processes: Processes = processes.iter().map(|p| (p.mark.pid, *p)).collect();
    // What the lock does not prove, and what a person said, changes nothing where the processes are shown.
    for (lock, is_said_over) in
        [(LockSeen::Free, false), (LockSeen::FreeWithoutProof, true), (LockSeen::Missing, true)]
    {
        let seen = Seen { here: &here(), lock, processes: &processes, is_ours: &|_| is_ours, is_said_over };
        let exit = ExitRecord { left_nothing: false, ..exit(Some(0), None, None) };
        let expected =
            if expected_alive { Life::Alive } else { Life::Dead("no process of its session is left") };
        // A recorded end alone proves nothing.
        for exit in [None, Some(&exit)] {
            assert_eq!(life(&claim(), Some(JVM), exit, &seen), expected, "{processes:?}");
        }
    }
}

fn exit(code: Option<i32>, signal: Option<i32>, problem: Option<&str>) -> ExitRecord {
    ExitRecord { code, signal, problem: problem.map(ToOwned::to_owned), left_nothing: true, ended_at_ms: 0 }
}

/// What is said at `here`, where none of the attempt's processes is shown.
fn elsewhere(here: &Place, lock: LockSeen) -> Life {
    let none = Processes::new();
    life(
        &claim(),
        Some(JVM),
        None,
        &Seen { here, lock, processes: &none, is_ours: &|_| None, is_said_over: false },
    )
}

const LOCKS: [LockSeen; 4] = [LockSeen::Held, LockSeen::Free, LockSeen::FreeWithoutProof, LockSeen::Missing];

#[test]
fn any_process_of_the_session_is_life() {
    check(&[process(100, 5, 100), process(101, 6, 100)], None, true);
    check(&[process(100, 5, 100)], None, true);
    // The wrapper was killed alone.
    check(&[process(101, 6, 100)], Some(false), true);
    check(&[], None, false);
    check(&[process(1, 1, 1), process(101, 6, 1)], None, false);
}

#[test]
fn a_session_number_used_again_is_another_session() {
    check(&[process(100, 77, 100), process(101, 6, 100)], None, false);
    // Another session's leader is gone, what it left was not started for us.
    check(&[process(300, 80, 100)], Some(false), false);
    // A child of our driver that outlived it, or one that cannot be asked.
    check(&[process(300, 80, 100)], Some(true), true);
    check(&[process(300, 80, 100)], None, true);
}

#[test]
fn a_zombie_is_dead() {
    let zombie = |pid, start| ProcessSeen { is_zombie: true, ..process(pid, start, 100) };
    check(&[zombie(100, 5), zombie(101, 6)], None, false);
    check(&[zombie(100, 5), process(101, 6, 100)], None, true);
}

#[test]
fn a_held_lock_is_life_whatever_else_is_seen() {
    let none = Processes::new();
    for here in [
        here(),
        Place { boot: "b2".to_owned(), ..here() },
        Place { boot: "b2".to_owned(), machine: None, ..here() },
        Place { pid_namespace: "pid:[2]".to_owned(), ..here() },
    ] {
        let seen = Seen {
            here: &here,
            lock: LockSeen::Held,
            processes: &none,
            is_ours: &|_| Some(false),
            is_said_over: true,
        };
        assert_eq!(life(&claim(), Some(JVM), Some(&exit(Some(0), None, None)), &seen), Life::Alive);
    }
}

#[test]
fn another_boot_is_death_on_the_same_machine_only() {
    let rebooted = Place { boot: "b2".to_owned(), ..here() };
    let other = Place { host: "h2".to_owned(), machine: Some("m2/h2".to_owned()), ..rebooted.clone() };
    // A container that does not say on which machine it is, and one under a host name used before.
    let untold = Place { machine: None, ..rebooted.clone() };
    for lock in LOCKS.into_iter().filter(|lock| *lock != LockSeen::Held) {
        assert_eq!(elsewhere(&rebooted, lock), Life::Dead("the machine was booted since"), "{lock:?}");
        for here in [&other, &untold] {
            let Life::Unknown(why) = elsewhere(here, lock) else { panic!("{lock:?} {here:?}") };
            for part in ["session 100", "h1 (boot b1)", &here.machine_name()] {
                assert!(why.contains(part), "{why}");
            }
        }
    }
}

#[test]
fn a_record_that_names_no_machine_is_not_dead_after_another_boot() {
    let mut old = claim();
    old.place.machine = None;
    let none = Processes::new();
    for machine in [None, here().machine] {
        let here = Place { boot: "b2".to_owned(), machine, ..here() };
        let seen = Seen {
            here: &here,
            lock: LockSeen::Free,
            processes: &none,
            is_ours: &|_| None,
            is_said_over: false,
        };
        assert!(matches!(life(&old, None, None, &seen), Life::Unknown(_)));
    }
}

#[test]
fn who_cannot_see_the_processes_believes_a_lock_of_this_kernel_alone() {
    for here in [
        Place { pid_namespace: "pid:[2]".to_owned(), ..here() },
        // Containers need not name a machine: one boot is one kernel.
        Place { pid_namespace: "pid:[2]".to_owned(), machine: None, host: "c2".to_owned(), ..here() },
        Place { user: 1001, ..here() },
    ] {
        assert_eq!(elsewhere(&here, LockSeen::Free), Life::Dead("its lock is free"), "{here:?}");
        for lock in [LockSeen::FreeWithoutProof, LockSeen::Missing] {
            let Life::Unknown(why) = elsewhere(&here, lock) else { panic!("{lock:?} {here:?}") };
            assert!(why.contains("pid:[1]") && why.contains("user 1000"), "{why}");
        }
    }
    let root = Place { user: 0, ..here() };
    for lock in [LockSeen::Free, LockSeen::FreeWithoutProof, LockSeen::Missing] {
        assert_eq!(elsewhere(&root, lock), Life::Dead("no process of its session is left"));
    }
}

#[test]
fn out_of_sight_the_wrapper_or_a_person_is_believed() {
    let none = Processes::new();
    let with = |exit: Option<&ExitRecord>, is_said_over| {
        let here = Place { boot: "b2".to_owned(), machine: None, ..here() };
        let lock = LockSeen::FreeWithoutProof;
        let seen = Seen { here: &here, lock, processes: &none, is_ours: &|_| None, is_said_over };
        life(&claim(), Some(JVM), exit, &seen)
    };
    let ended = exit(Some(0), None, None);
    let left_a_child = ExitRecord { left_nothing: false, ..ended.clone() };
    assert!(matches!(with(None, false), Life::Unknown(_)));
    assert!(matches!(with(Some(&left_a_child), false), Life::Unknown(_)));
    assert_eq!(with(Some(&ended), false), Life::Dead("its wrapper saw that nothing of it was left"));
    for exit in [None, Some(&left_a_child)] {
        assert_eq!(with(exit, true), Life::Dead("a person said that nothing of it lives"));
    }
}

/// Case C12: the words of an end, in one total function.
#[test]
fn words_for_every_end() {
    let check = |life: &Life, exit: Option<ExitRecord>, word: &str| {
        let expected = JobState::Ended { how: word.to_owned(), is_settled: true };
        assert_eq!(state(life, exit.as_ref()), expected);
    };
    let dead = Life::Dead("no process of its session is left");
    check(&dead, Some(exit(Some(0), None, None)), "exit 0");
    check(&dead, Some(exit(None, Some(9), None)), "signal 9");
    check(&dead, Some(exit(None, None, Some("cannot start"))), "cannot start");
    check(&dead, None, "died without an exit code: no process of its session is left");
    let unknown = Life::Unknown("elsewhere".to_owned());
    // Something that the driver started may still be there, and be the driver.
    for exit in [None, Some(exit(Some(3), None, None))] {
        assert_eq!(state(&Life::Alive, exit.as_ref()), JobState::Running);
        let unreachable = JobState::Unreachable { reason: "elsewhere".to_owned() };
        assert_eq!(state(&unknown, exit.as_ref()), unreachable);
    }
}

#[test]
fn a_handle_names_one_start() {
    let one = Handle::of(&claim(), Some(JVM));
    assert_eq!(Handle::parse(&one.text()), Some(one.clone()));
    assert!(one.is_same(&Handle { jvm: None, ..one.clone() }));
    for other in [
        Handle { place: Place { boot: "b2".to_owned(), ..here() }, ..one.clone() },
        Handle { session: 101, ..one.clone() },
        Handle { wrapper: ProcessMark { pid: 100, start: 6 }, ..one.clone() },
        Handle { jvm: Some(ProcessMark { pid: 101, start: 7 }), ..one.clone() },
    ] {
        assert!(!one.is_same(&other), "{other:?}");
    }
    let old = r#"{"boot":"b1","session":100,"wrapper":{"pid":100,"start":5}}"#;
    let old = Handle::parse(old).unwrap();
    assert!(old.is_same(&one) && !old.place.is_shown_to(&here()), "{old:?}");
    for text in ["", "scripted-1", "{}", "null"] {
        assert_eq!(Handle::parse(text), None);
    }
}
