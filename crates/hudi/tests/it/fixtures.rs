//! 61 real tables, each compared with Hudi's own answer.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use tms_hudi::{
    FileGroupRef, HistoryEntry, HudiAction, HudiTable, Instant, InstantState, LocalListing, PendingPlan,
    Plan, PlanAction, Snapshot,
};

use crate::common::{Fixture, fixture_names, look, unpack};

/// Differences between our answer and Hudi's, and how much was compared.
#[derive(Default)]
struct Comparison {
    differences: Vec<String>,
    n_tables: usize,
    n_instants: usize,
    n_plans: usize,
    n_archived: usize,
}

impl Comparison {
    fn equal<T: PartialEq + Debug>(&mut self, place: &str, what: &str, ours: &T, hudis: &T) {
        if ours != hudis {
            self.differences.push(format!("{place}: {what}: ours {ours:?}, Hudi's {hudis:?}"));
        }
    }
}

fn hudis_state(state: InstantState) -> &'static str {
    match state {
        InstantState::Requested => "REQUESTED",
        InstantState::Inflight => "INFLIGHT",
        InstantState::Completed => "COMPLETED",
    }
}

fn instant_json(instant: &Instant) -> Json {
    json!({
        "action": instant.action.as_str(),
        "state": hudis_state(instant.state),
        "requestedTime": instant.requested,
        "completionTime": instant.completed,
    })
}

/// Hudi's instants without what no copy can reproduce: completion times of layout 1 are file times.
fn without_file_times(instants: &Json, layout: &Json) -> Vec<Json> {
    let mut instants = instants.as_array().unwrap().clone();
    if layout == 1 {
        instants.iter_mut().for_each(|instant| instant["completionTime"] = Json::Null);
    }
    instants
}

fn times(snapshot: &Snapshot, is_wanted: impl Fn(&Instant) -> bool) -> Json {
    snapshot.instants().iter().filter(|i| is_wanted(i)).map(|i| i.requested.clone()).collect()
}

fn slice_json(group: &FileGroupRef) -> Json {
    json!({
        "partitionPath": group.partition,
        "fileId": group.file_id,
        "dataFilePath": group.base_file,
        "deltaFilePaths": group.log_files,
    })
}

fn plan_json(pending: &PendingPlan, plan: &Plan, hudis: &Json) -> Json {
    let instant = hudis["instant"].clone();
    match pending.action {
        PlanAction::Compaction | PlanAction::LogCompaction => {
            let operations = plan.groups.iter().map(|group| {
                let mut operation = slice_json(group);
                operation["baseInstantTime"] = json!(group.base_instant);
                operation["metrics"] = json!(plan.metrics[usize::try_from(group.group).unwrap()]);
                operation
            });
            json!({"instant": instant, "version": plan.version, "operations": operations.collect::<Json>()})
        }
        PlanAction::Clustering => {
            let groups = plan.metrics.iter().enumerate().map(|(at, metrics)| {
                let slices = plan
                    .groups
                    .iter()
                    .filter(|group| usize::try_from(group.group).unwrap() == at)
                    .map(slice_json);
                json!({
                    "numOutputFileGroups": plan.output_file_groups[at],
                    "metrics": metrics,
                    "slices": slices.collect::<Json>(),
                })
            });
            json!({
                "instant": instant,
                "version": plan.version,
                "strategyClass": plan.strategy_class,
                "strategyParams": plan.strategy_params,
                "inputGroups": groups.collect::<Json>(),
            })
        }
        PlanAction::Clean => {
            let clean = plan.clean.as_ref().unwrap();
            json!({
                "instant": instant,
                "version": plan.version,
                "policy": clean.policy,
                "earliestInstantToRetain": clean.earliest_instant,
                "filesPerPartition": clean.files_per_partition,
            })
        }
    }
}

fn compare_plans(c: &mut Comparison, place: &str, snapshot: &Snapshot, expected: &Json) {
    let kinds = [
        (PlanAction::Compaction, "pendingCompactionPlans"),
        (PlanAction::LogCompaction, "pendingLogCompactionPlans"),
        (PlanAction::Clustering, "pendingClusteringPlans"),
        (PlanAction::Clean, "pendingCleanPlans"),
    ];
    for (action, key) in kinds {
        let ours: Vec<&PendingPlan> = snapshot.pending().iter().filter(|p| p.action == action).collect();
        let hudis = expected[key].as_array().unwrap();
        c.equal(place, &format!("number of {key}"), &ours.len(), &hudis.len());
        for (pending, hudis) in ours.into_iter().zip(hudis) {
            c.n_plans += 1;
            c.equal(place, key, &json!(pending.instant), &hudis["instant"]["requestedTime"]);
            c.equal(place, key, &json!(hudis_state(pending.state)), &hudis["instant"]["state"]);
            match &pending.plan {
                Ok(plan) => c.equal(place, key, &plan_json(pending, plan, hudis), hudis),
                Err(e) => c.differences.push(format!("{place}: {key}: {e}")),
            }
        }
    }
}

async fn compare_table(c: &mut Comparison, place: &str, base: &str, expected: &Json) {
    c.n_tables += 1;
    let table = HudiTable::new(Arc::new(LocalListing), base);
    let snapshot = look(&table).await;
    let properties = snapshot.properties();
    c.equal(place, "name", &json!(properties.name), &expected["tableName"]);
    c.equal(place, "database", &json!(properties.database), &expected["databaseName"]);
    c.equal(place, "type", &json!(properties.table_type.as_str()), &expected["tableType"]);
    c.equal(place, "version", &json!(properties.version), &expected["tableVersion"]);
    c.equal(place, "layout", &json!(properties.layout), &expected["timelineLayoutVersion"]);

    let layout = &expected["timelineLayoutVersion"];
    let ours: Vec<Json> = snapshot.instants().iter().map(instant_json).collect();
    c.n_instants += ours.len();
    c.equal(place, "activeInstants", &ours, &without_file_times(&expected["activeInstants"], layout));

    let pending = |instant: &Instant, actions: &[HudiAction]| {
        instant.state != InstantState::Completed && actions.contains(&instant.action)
    };
    let lists = [
        ("pendingCompaction", times(&snapshot, |i| pending(i, &[HudiAction::Compaction]))),
        ("pendingLogCompaction", times(&snapshot, |i| pending(i, &[HudiAction::LogCompaction]))),
        (
            "pendingReplaceOrClustering",
            times(&snapshot, |i| pending(i, &[HudiAction::ReplaceCommit, HudiAction::Clustering])),
        ),
        ("pendingCleanAll", times(&snapshot, |i| pending(i, &[HudiAction::Clean]))),
        (
            "completedCommits",
            times(&snapshot, |i| {
                let commits = [HudiAction::Commit, HudiAction::DeltaCommit, HudiAction::ReplaceCommit];
                i.state == InstantState::Completed && commits.contains(&i.action)
            }),
        ),
        ("savepoints", snapshot.savepoints().collect()),
    ];
    for (key, ours) in lists {
        c.equal(place, key, &ours, &expected[key]);
    }
    compare_plans(c, place, &snapshot, expected);
    compare_history(c, place, &table, &snapshot, expected).await;
}

async fn compare_history(
    c: &mut Comparison,
    place: &str,
    table: &HudiTable,
    snapshot: &Snapshot,
    expected: &Json,
) {
    let history = table.history(snapshot).await.expect("the history can be read");
    c.n_archived += history.len();
    let as_text = |entry: &HistoryEntry| {
        json!({
            "action": entry.action.as_str(),
            "state": hudis_state(entry.state),
            "requestedTime": entry.requested,
            "completionTime": entry.completed,
        })
        .to_string()
    };
    let ours: BTreeSet<String> = history.iter().map(as_text).collect();
    let hudis: BTreeSet<String> =
        without_file_times(&expected["archivedInstants"], &expected["timelineLayoutVersion"])
            .into_iter()
            .map(|instant| instant.to_string())
            .collect();
    c.equal(place, "archivedInstants", &ours, &hudis);
    for entry in history.iter().filter(|entry| entry.state == InstantState::Completed) {
        let found = table.in_history(snapshot, &entry.requested).await.expect("the history can be read");
        c.equal(place, "look-up in the history", &found.as_ref(), &Some(entry));
    }
}

#[tokio::test]
async fn every_fixture_equals_hudis_own_answer() {
    let mut c = Comparison::default();
    let names = fixture_names();
    for name in &names {
        let Fixture { base, expected, .. } = &unpack(name);
        compare_table(&mut c, name, base, expected).await;
        let metadata = &expected["metadataTable"];
        let table = HudiTable::new(Arc::new(LocalListing), base.as_str());
        let has_metadata = table.metadata_properties().await.expect("the properties can be read").is_some();
        c.equal(name, "has a metadata table", &has_metadata, &metadata.is_object());
        if metadata.is_object() {
            compare_table(
                &mut c,
                &format!("{name} (metadata table)"),
                &format!("{base}/.hoodie/metadata"),
                metadata,
            )
            .await;
        }
    }
    assert!(c.differences.is_empty(), "{} differences:\n{}", c.differences.len(), c.differences.join("\n"));
    // As the fixtures' own README counts them; 50 of the 61 have a metadata table.
    assert_eq!((names.len(), c.n_tables), (61, 111));
    assert_eq!((c.n_instants, c.n_plans, c.n_archived), (580, 41, 242));
}
