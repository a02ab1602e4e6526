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
    let alive: Vec<ProcessSeen> = processes.iter().filter(|p| !p.is_zombie).copied().collect();
    let processes: Processes = processes.iter().map(|p| (p.mark.pid, *p)).collect();
    // What the lock does not prove, and what a person said, changes nothing where the processes are shown.
    for (lock, is_said_over) in
        [(LockSeen::Free, false), (LockSeen::FreeWithoutProof, true), (LockSeen::Missing, true)]
    {
        let here = here();
        let seen = Seen { is_ours: &|_| is_ours, ..seen(&here, lock, &processes, is_said_over) };
        let exit = ExitRecord { left_nothing: false, ..exit(Some(0), None, None) };
        let expected =
            if expected_alive { Life::Alive(alive.clone()) } else { Life::Dead("no process of it is left") };
        // A recorded end alone proves nothing.
        for exit in [None, Some(&exit)] {
            assert_eq!(life(&claim(), Some(JVM), exit, &seen).unwrap(), expected, "{processes:?}");
        }
    }
}

/// A look in which nothing is found by tag or lock.
fn seen<'a>(here: &'a Place, lock: LockSeen, processes: &'a Processes, is_said_over: bool) -> Seen<'a> {
    let none = &|| Ok(Vec::new());
    Seen { here, lock, processes, is_ours: &|_| None, tagged: none, holders: none, is_said_over }
}

fn exit(code: Option<i32>, signal: Option<i32>, problem: Option<&str>) -> ExitRecord {
    ExitRecord { code, signal, problem: problem.map(ToOwned::to_owned), left_nothing: true, ended_at_ms: 0 }
}

/// What is said at `here`, where none of the attempt's processes is shown.
fn elsewhere(here: &Place, lock: LockSeen) -> Life {
    let none = Processes::new();
    life(&claim(), Some(JVM), None, &seen(here, lock, &none, false)).unwrap()
}

const LOCKS: [LockSeen; 4] = [LockSeen::Held, LockSeen::Free, LockSeen::FreeWithoutProof, LockSeen::Missing];

#[test]
fn any_process_of_the_session_is_life() {
    check(&[process(100, 5, 100), process(101, 6, 100)], None, true);
    check(&[process(100, 5, 100)], None, true);
    // The wrapper was killed alone.
    check(&[process(101, 6, 100)], Some(false), true);
    check(&[], None, false);
    check(&[process(1, 1, 1)], None, false);
    // The driver made a session of its own.
    check(&[process(101, 6, 101)], Some(false), true);
}

#[test]
fn a_session_number_used_again_is_another_session() {
    check(&[process(100, 77, 100), process(101, 7, 100)], None, false);
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
fn a_held_lock_is_life_where_its_processes_are_not_shown() {
    let none = Processes::new();
    for here in [
        Place { boot: "b2".to_owned(), ..here() },
        Place { boot: "b2".to_owned(), machine: None, ..here() },
        Place { pid_namespace: "pid:[2]".to_owned(), ..here() },
        Place { user: 1001, ..here() },
    ] {
        let seen = Seen { is_ours: &|_| Some(false), ..seen(&here, LockSeen::Held, &none, true) };
        let life = life(&claim(), Some(JVM), Some(&exit(Some(0), None, None)), &seen);
        assert_eq!(life.unwrap(), Life::Alive(Vec::new()));
    }
}

#[test]
fn a_lock_that_nothing_in_sight_holds_is_left_to_a_person() {
    let (none, here) = (Processes::new(), here());
    let with = |is_said_over| {
        let exit = exit(Some(0), None, None);
        life(&claim(), Some(JVM), Some(&exit), &seen(&here, LockSeen::Held, &none, is_said_over)).unwrap()
    };
    let Life::Unknown(why) = with(false) else { panic!("told") };
    assert!(why.contains("session 100") && why.contains("lock is held"), "{why}");
    assert_eq!(with(true), Life::Dead("a person said that nothing of it lives"));
}

#[test]
fn what_carries_the_tag_or_inherited_the_lock_is_life_in_any_session() {
    let none = Processes::new();
    let other = [process(700, 90, 700)];
    let found = || Ok(other.to_vec());
    let left_a_child = ExitRecord { left_nothing: false, ..exit(Some(0), None, None) };
    for here in [here(), Place { pid_namespace: "pid:[2]".to_owned(), ..here() }] {
        for lock in LOCKS {
            let seen = Seen { tagged: &found, ..seen(&here, lock, &none, true) };
            for exit in [None, Some(&left_a_child)] {
                let life = life(&claim(), Some(JVM), exit, &seen).unwrap();
                assert_eq!(life, Life::Alive(other.to_vec()), "{lock:?}");
            }
        }
        let held = Seen { holders: &found, ..seen(&here, LockSeen::Held, &none, true) };
        assert_eq!(life(&claim(), Some(JVM), None, &held).unwrap(), Life::Alive(other.to_vec()));
    }
    // Nothing of an attempt outlives its boot, whatever carries its tag.
    let rebooted = Place { boot: "b2".to_owned(), ..here() };
    let seen = Seen { tagged: &found, ..seen(&rebooted, LockSeen::Free, &none, false) };
    assert_eq!(life(&claim(), None, None, &seen).unwrap(), Life::Dead("the machine was booted since"));
}

/// Looking at every process is for a session that looks empty, and for an end that the wrapper did not see.
#[test]
fn nothing_more_is_looked_for_when_the_session_or_the_record_tells() {
    let never: LookFor<'_> = &|| Err(io::Error::other("looked"));
    let (none, here) = (Processes::new(), here());
    let driver: Processes = [(101, process(101, 6, 100))].into();
    let look = |processes: &Processes, lock, exit: Option<&ExitRecord>| {
        let seen = Seen { tagged: never, holders: never, ..seen(&here, lock, processes, false) };
        life(&claim(), Some(JVM), exit, &seen)
    };
    assert!(matches!(look(&driver, LockSeen::Held, None), Ok(Life::Alive(_))));
    let ended = exit(Some(0), None, None);
    assert!(matches!(look(&none, LockSeen::Free, Some(&ended)), Ok(Life::Dead(_))));
    // What cannot be looked at proves nothing.
    look(&none, LockSeen::Free, None).unwrap_err();
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
        let seen = seen(&here, LockSeen::Free, &none, false);
        assert!(matches!(life(&old, None, None, &seen).unwrap(), Life::Unknown(_)));
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
    // What was left may have closed every file.
    let away = Place { pid_namespace: "pid:[2]".to_owned(), ..here() };
    let left_a_child = ExitRecord { left_nothing: false, ..exit(Some(0), None, None) };
    let none = Processes::new();
    let seen = seen(&away, LockSeen::Free, &none, false);
    assert!(matches!(life(&claim(), Some(JVM), Some(&left_a_child), &seen).unwrap(), Life::Unknown(_)));
    let root = Place { user: 0, ..here() };
    for lock in [LockSeen::Free, LockSeen::FreeWithoutProof, LockSeen::Missing] {
        assert_eq!(elsewhere(&root, lock), Life::Dead("no process of it is left"));
    }
}

#[test]
fn out_of_sight_the_wrapper_or_a_person_is_believed() {
    let none = Processes::new();
    let with = |exit: Option<&ExitRecord>, is_said_over| {
        let here = Place { boot: "b2".to_owned(), machine: None, ..here() };
        let lock = LockSeen::FreeWithoutProof;
        life(&claim(), Some(JVM), exit, &seen(&here, lock, &none, is_said_over)).unwrap()
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
    let dead = Life::Dead("no process of it is left");
    check(&dead, Some(exit(Some(0), None, None)), "exit 0");
    check(&dead, Some(exit(None, Some(9), None)), "signal 9");
    check(&dead, Some(exit(None, None, Some("cannot start"))), "cannot start");
    check(&dead, None, "died without an exit code: no process of it is left");
    let unknown = Life::Unknown("elsewhere".to_owned());
    // Something that the driver started may still be there, and be the driver.
    for exit in [None, Some(exit(Some(3), None, None))] {
        assert_eq!(state(&Life::Alive(Vec::new()), exit.as_ref()), JobState::Running);
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
