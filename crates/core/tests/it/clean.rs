//! Clean: due by commits, planned and executed in one job, and never somebody else's.

use tms_core::manager::attempt::{LeaveAnswer, LeaveStage};
use tms_core::manager::instance::AddInstance;
use tms_core::model::action::Action;
use tms_core::model::attempt::Expected;
use tms_core::model::instance::{Instance, InstanceState, ParkReason};
use tms_core::store::InstanceFilter;

use crate::rig::{Rig, T1, day_zero, instant, run_id};

/// Clean plans of these tests.
const C1: &str = "20270201000000001";
const C2: &str = "20270201000000002";

/// A rig whose tables are cleaned after three commits.
async fn cleaning() -> Rig {
    Rig::start_with(|s| s.policies.defaults.clean_after_commits = 3).await
}

/// A writer commits `n` times, each with its callback.
async fn commits(rig: &Rig, from: u32, n: u32) {
    for number in from..from + n {
        rig.table("t", |t| t.sight.commits.push(instant(&format!("202701010000{number:05}"))));
        rig.callback("t").await;
    }
    rig.pass(5).await;
}

/// All cleans of the table, the oldest first.
async fn cleans(rig: &Rig) -> Vec<Instance> {
    let filter = InstanceFilter { actions: vec![Action::Clean], ..InstanceFilter::default() };
    let mut found = rig.store.list_instances(&filter, None, 100).await.unwrap().items;
    found.reverse();
    found
}

async fn until_clean(rig: &Rig, n: usize, word: &str) -> Instance {
    for _ in 0..2_000 {
        if let Some(found) = cleans(rig).await.get(n).filter(|i| i.state.as_str() == word) {
            return found.clone();
        }
        rig.pass(1).await;
    }
    panic!("clean {n} is never {word}: {:#?}", cleans(rig).await);
}

/// The nth job plans a clean, and runs it or not.
async fn plans(rig: &Rig, n: usize, text: &str) -> tms_core::engine::Job {
    let job = rig.job(n).await;
    let LeaveAnswer::Given(grant) = rig.ask(&job, &run_id(n), LeaveStage::Start).await else {
        panic!("refused")
    };
    assert_eq!((grant.instant, grant.expected), (None, Expected::None));
    rig.take_leave(&job, &run_id(n)).await;
    rig.table("t", |t| t.plan(Action::Clean, &instant(text)));
    job
}

#[tokio::test(start_paused = true)]
async fn a_clean_is_due_after_so_many_commits_and_one_is_live() {
    let rig = cleaning().await;
    commits(&rig, 1, 2).await;
    assert!(cleans(&rig).await.is_empty());
    commits(&rig, 3, 4).await;
    let found = cleans(&rig).await;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].key.instant, None);
    let job = plans(&rig, 1, C1).await;
    rig.callback("t").await;
    rig.pass(2).await;
    // It took its instant when its plan appeared.
    assert_eq!(rig.get(found[0].id).await.key.instant, Some(instant(C1)));
    rig.completes(&job, 1, "t", Action::Clean, C1).await;
    let ended = until_clean(&rig, 0, "succeeded").await;
    assert_eq!(ended.id, found[0].id);
    let told = rig.store.events(ended.id).await.unwrap();
    assert_eq!(told.last().unwrap().reason, "the timeline says completed");
    // The next one after three more commits, counted from the clean.
    rig.table("t", |t| t.sight.commits.push(instant("20270301000000001")));
    rig.callback("t").await;
    rig.pass(5).await;
    assert_eq!(cleans(&rig).await.len(), 1);
    rig.table("t", |t| t.sight.commits.extend([instant("20270301000000002"), instant("20270301000000003")]));
    rig.callback("t").await;
    until_clean(&rig, 1, "active").await;
    rig.stop().await;
}

/// Nothing to clean: no plan appears, the call returns. A success, and the next only after as many further commits.
#[tokio::test(start_paused = true)]
async fn a_clean_that_found_nothing_is_a_success_and_not_repeated_at_once() {
    let rig = cleaning().await;
    commits(&rig, 1, 3).await;
    let job = rig.job(1).await;
    rig.take_leave(&job, &run_id(1)).await;
    rig.ends(&job, 1, "returned", 0, &[]).await;
    let ended = until_clean(&rig, 0, "succeeded").await;
    let told = rig.store.events(ended.id).await.unwrap();
    assert_eq!(told.last().unwrap().reason, "there was nothing to clean");
    assert_eq!((ended.key.instant, ended.n_failed), (None, 0));
    for _ in 0..5 {
        rig.callback("t").await;
        rig.pass(700).await;
    }
    commits(&rig, 4, 2).await;
    assert_eq!(cleans(&rig).await.len(), 1);
    commits(&rig, 6, 1).await;
    assert_eq!(cleans(&rig).await.len(), 2);
    rig.stop().await;
}

/// The same when the engine takes its time to say that the job has ended.
#[tokio::test(start_paused = true)]
async fn a_clean_that_found_nothing_and_ends_slowly_is_not_repeated_at_once_either() {
    let rig = cleaning().await;
    commits(&rig, 1, 3).await;
    let job = rig.job(1).await;
    rig.take_leave(&job, &run_id(1)).await;
    rig.report(&job, &run_id(1), "returned", 0, &[]).await;
    until_clean(&rig, 0, "succeeding").await;
    rig.engine.end(&job.tag, "exit 0");
    until_clean(&rig, 0, "succeeded").await;
    rig.callback("t").await;
    rig.pass(60).await;
    assert_eq!(cleans(&rig).await.len(), 1);
    commits(&rig, 4, 3).await;
    assert_eq!(cleans(&rig).await.len(), 2);
    rig.stop().await;
}

/// A clean whose job died after planning: its plan is ours and is run again.
#[tokio::test(start_paused = true)]
async fn a_clean_that_died_after_planning_runs_its_own_plan() {
    let rig = cleaning().await;
    commits(&rig, 1, 3).await;
    let job = plans(&rig, 1, C1).await;
    rig.engine.end(&job.tag, "killed");
    let again = rig.job(2).await;
    let LeaveAnswer::Given(grant) = rig.ask(&again, &run_id(2), LeaveStage::Start).await else { panic!() };
    assert_eq!((grant.instant, grant.expected), (Some(instant(C1)), Expected::InflightOfOurs));
    rig.take_leave(&again, &run_id(2)).await;
    rig.completes(&again, 2, "t", Action::Clean, C1).await;
    let ended = until_clean(&rig, 0, "succeeded").await;
    assert_eq!((ended.n_failed, ended.n_attempts, cleans(&rig).await.len()), (1, 2, 1));
    rig.stop().await;
}

/// `run_clean` would execute it: while a plan of somebody else stands no clean of ours starts.
#[tokio::test(start_paused = true)]
async fn a_clean_plan_of_somebody_else_stays_its_writers() {
    let rig = Rig::start_with(|s| {
        s.policies.defaults.clean_after_commits = 3;
        s.policies.defaults.foreign_grace = std::time::Duration::from_secs(600);
    })
    .await;
    rig.table("t", |t| {
        t.plan(Action::Clean, &instant(C1));
        t.sign = Some(day_zero());
    });
    commits(&rig, 1, 3).await;
    let waiting = until_clean(&rig, 0, "waiting_foreign").await;
    assert_eq!((waiting.key.instant, cleans(&rig).await.len()), (None, 1));
    rig.pass(700).await;
    let parked = rig.get(waiting.id).await;
    assert!(
        matches!(parked.state, InstanceState::Parked { reason: ParkReason::ForeignRunner, .. }),
        "{parked:?}"
    );
    // Its writer finishes it: ours goes on by itself.
    rig.table("t", |t| {
        t.complete(Action::Clean, &instant(C1));
        t.sight.commits.extend((1..=3).map(|n| instant(&format!("2027030100000000{n}"))));
    });
    rig.callback("t").await;
    rig.pass(120).await;
    if rig.engine.calls().submit == 0 {
        rig.managers.instances.retry(parked.id, true, "test").await.unwrap();
    }
    let job = plans(&rig, 1, C2).await;
    rig.completes(&job, 1, "t", Action::Clean, C2).await;
    until_clean(&rig, 0, "succeeded").await;
    rig.stop().await;
}

/// The plan of somebody else appears between submission and leave.
#[tokio::test(start_paused = true)]
async fn a_foreign_clean_plan_takes_the_leave_away() {
    let rig = cleaning().await;
    commits(&rig, 1, 3).await;
    let job = rig.job(1).await;
    assert!(matches!(rig.ask(&job, &run_id(1), LeaveStage::Start).await, LeaveAnswer::Given(_)));
    rig.table("t", |t| {
        t.plan(Action::Clean, &instant(C1));
        t.sign = Some(day_zero());
    });
    rig.refused(&job, &run_id(1), LeaveStage::Call, "foreign_runner").await;
    rig.ends(&job, 1, "untouched", 10, &[]).await;
    let waiting = until_clean(&rig, 0, "waiting_foreign").await;
    assert_eq!(waiting.key.instant, None, "the plan is not ours");
    rig.stop().await;
}

/// A person takes a foreign clean over whose instant is known from before: the row that has its key does no harm.
#[tokio::test(start_paused = true)]
async fn a_clean_taken_over_whose_instant_is_known_already_ends() {
    let rig = Rig::start().await;
    rig.table("t", |t| {
        t.plan(Action::Clean, &instant(C1));
        t.sign = Some(day_zero());
    });
    rig.hand_over("t", vec![(Action::Clean, C1.to_owned())]).await;
    let known = Rig::key("t", Action::Clean, C1);
    rig.until_state(&known, "obsolete").await;
    rig.settings("t", |s| {
        s.clean_after_commits = Some(3);
        s.foreign_grace_secs = Some(10);
    })
    .await;
    commits(&rig, 1, 3).await;
    rig.pass(120).await;
    let ours = cleans(&rig).await.into_iter().find(|i| i.key.instant.is_none()).unwrap();
    rig.managers.instances.retry(ours.id, true, "test").await.unwrap();
    let job = rig.job(1).await;
    let LeaveAnswer::Given(grant) = rig.ask(&job, &run_id(1), LeaveStage::Start).await else { panic!() };
    assert_eq!((grant.instant, grant.expected), (Some(instant(C1)), Expected::InflightOfOurs));
    rig.take_leave(&job, &run_id(1)).await;
    let n_looks = rig.table("t", |t| t.n_looks);
    rig.callback("t").await;
    rig.pass(60).await;
    let n_looks = rig.table("t", |t| t.n_looks) - n_looks;
    assert!(n_looks < 20, "{n_looks} looks in a minute");
    assert_eq!(rig.record("t").await.look.looked, rig.record("t").await.touch.touch, "the look is stored");
    // It dies with the plan still pending: judged as any other.
    rig.engine.end(&job.tag, "killed");
    let again = rig.job(2).await;
    rig.take_leave(&again, &run_id(2)).await;
    rig.completes(&again, 2, "t", Action::Clean, C1).await;
    for _ in 0..600 {
        rig.pass(1).await;
        if rig.get(ours.id).await.state.is_ended() {
            break;
        }
    }
    assert_eq!(rig.get(ours.id).await.state.as_str(), "succeeded");
    rig.stop().await;
}

/// Cancelled means held: not made again by the next look.
#[tokio::test(start_paused = true)]
async fn a_cancelled_clean_comes_again_only_after_further_commits() {
    let rig = cleaning().await;
    rig.managers.queues.pause(&"default".parse().unwrap(), "test").await.unwrap();
    rig.pass(2).await;
    commits(&rig, 1, 3).await;
    let waiting = cleans(&rig).await.remove(0);
    rig.managers.instances.cancel(waiting.id, "test").await.unwrap();
    for _ in 0..3 {
        rig.callback("t").await;
        rig.pass(700).await;
    }
    assert_eq!(cleans(&rig).await.len(), 1);
    commits(&rig, 4, 3).await;
    assert_eq!(cleans(&rig).await.len(), 2);
    rig.stop().await;
}

/// Given up after its attempts: the next one after as many further commits, not at once.
#[tokio::test(start_paused = true)]
async fn a_failed_clean_comes_again_only_after_further_commits() {
    let rig = cleaning().await;
    commits(&rig, 1, 3).await;
    for n in 1..=3 {
        let job = rig.job(n).await;
        rig.take_leave(&job, &run_id(n)).await;
        rig.ends(&job, n, "threw", 3, &["boom"]).await;
    }
    until_clean(&rig, 0, "failed").await;
    rig.callback("t").await;
    rig.pass(3600).await;
    assert_eq!(cleans(&rig).await.len(), 1);
    commits(&rig, 4, 3).await;
    assert_eq!(cleans(&rig).await.len(), 2);
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_person_may_ask_for_a_clean_and_gets_the_same_one_when_asking_again() {
    let rig = Rig::start().await;
    rig.callback("t").await;
    rig.table("t", |_| ());
    let add = || AddInstance {
        table: "/lake/t".to_owned(),
        action: Action::Clean,
        instant: None,
        queue: None,
        priority: None,
    };
    let first = rig.managers.instances.add(add(), "test").await.unwrap();
    let second = rig.managers.instances.add(add(), "test").await.unwrap();
    assert_eq!(first.instance.id, second.instance.id);
    let job = plans(&rig, 1, C1).await;
    rig.completes(&job, 1, "t", Action::Clean, C1).await;
    until_clean(&rig, 0, "succeeded").await;
    rig.stop().await;
}

/// Clean goes last, and after what its table's writers wait for.
#[tokio::test(start_paused = true)]
async fn a_compaction_goes_before_a_clean() {
    let rig = cleaning().await;
    rig.managers.queues.pause(&"default".parse().unwrap(), "test").await.unwrap();
    rig.pass(2).await;
    commits(&rig, 1, 3).await;
    rig.planned("t", Action::Compaction, T1).await;
    rig.pass(2).await;
    rig.managers.queues.resume(&"default".parse().unwrap(), "test").await.unwrap();
    assert_eq!(rig.job(1).await.action, Action::Compaction);
    rig.stop().await;
}

/// An exit code of 0 may be that of a script around the driver, which died: nothing says that there was nothing to clean.
#[tokio::test(start_paused = true)]
async fn a_clean_that_only_exits_with_zero_is_run_again() {
    let rig = cleaning().await;
    commits(&rig, 1, 3).await;
    let job = rig.job(1).await;
    rig.take_leave(&job, &run_id(1)).await;
    rig.engine.end(&job.tag, "exit 0");
    rig.job(2).await;
    rig.stop().await;
}
