//! Every way in which an attempt can look alive or dead.

use tms_core::model::id::{Incarnation, InstanceId, Tag};

use super::*;

fn here() -> Place {
    Place { boot: "b1".to_owned(), pid_namespace: "pid:[1]".to_owned(), user: 1000 }
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
    let seen = Seen { here: &here(), lock: LockSeen::Free, processes: &processes, is_ours: &|_| is_ours };
    let life = life(&claim(), Some(JVM), &seen);
    assert_eq!(life == Life::Alive, expected_alive, "{processes:?}");
}

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
fn another_boot_is_death_and_a_held_lock_is_life() {
    let none = Processes::new();
    let with = |here: &Place, lock| {
        life(&claim(), Some(JVM), &Seen { here, lock, processes: &none, is_ours: &|_| None })
    };
    assert_eq!(with(&here(), LockSeen::Held), Life::Alive);
    assert!(matches!(with(&here(), LockSeen::Free), Life::Dead(_)));
    assert!(matches!(with(&here(), LockSeen::Missing), Life::Dead(_)));
    let rebooted = Place { boot: "b2".to_owned(), ..here() };
    assert!(matches!(with(&rebooted, LockSeen::Held), Life::Dead(_)));
}

#[test]
fn who_cannot_see_the_processes_believes_the_lock_alone() {
    let none = Processes::new();
    for (here, can_see) in [
        (Place { pid_namespace: "pid:[2]".to_owned(), ..here() }, false),
        (Place { user: 1001, ..here() }, false),
        (Place { user: 0, ..here() }, true),
    ] {
        let with =
            |lock| life(&claim(), None, &Seen { here: &here, lock, processes: &none, is_ours: &|_| None });
        assert!(matches!(with(LockSeen::Free), Life::Dead(_)));
        assert_eq!(with(LockSeen::Missing) == Life::Alive, !can_see, "{here:?}");
    }
}

/// Case C12: the words of an end, in one total function.
#[test]
fn words_for_every_end() {
    let exit = |code, signal, problem: Option<&str>| ExitRecord {
        code,
        signal,
        problem: problem.map(ToOwned::to_owned),
        ended_at_ms: 0,
    };
    let check = |life: &Life, exit: Option<ExitRecord>, word: &str, settled: bool| {
        let expected = JobState::Ended { how: word.to_owned(), is_settled: settled };
        assert_eq!(state(life, exit.as_ref()), expected);
    };
    let dead = Life::Dead("no process of its session is left");
    check(&dead, Some(exit(Some(0), None, None)), "exit 0", true);
    check(&dead, Some(exit(None, Some(9), None)), "signal 9", true);
    check(&dead, Some(exit(None, None, Some("cannot start"))), "cannot start", true);
    check(&dead, None, "died without an exit code: no process of its session is left", true);
    // Something that the driver started is still there.
    check(&Life::Alive, Some(exit(Some(3), None, None)), "exit 3", false);
    assert_eq!(state(&Life::Alive, None), JobState::Running);
}

#[test]
fn a_handle_names_one_start() {
    let one = Handle::of(&claim(), Some(JVM));
    assert_eq!(Handle::parse(&one.text()), Some(one.clone()));
    assert!(one.is_same(&Handle { jvm: None, ..one.clone() }));
    for other in [
        Handle { boot: "b2".to_owned(), ..one.clone() },
        Handle { session: 101, ..one.clone() },
        Handle { wrapper: ProcessMark { pid: 100, start: 6 }, ..one.clone() },
        Handle { jvm: Some(ProcessMark { pid: 101, start: 7 }), ..one.clone() },
    ] {
        assert!(!one.is_same(&other), "{other:?}");
    }
    for text in ["", "scripted-1", "{}", "null"] {
        assert_eq!(Handle::parse(text), None);
    }
}
