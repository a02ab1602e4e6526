//! Signs beside the timeline: locks, heartbeats, marker folders, and rollbacks that name an instant.

use std::collections::HashMap;

use chrono::{DateTime, Utc};

use crate::error::{Error, ErrorKind};
use crate::fault::Fault;
use crate::listing::Entry;
use crate::names::{HudiAction, InstantState, parse_timeline_name};
use crate::snapshot::{Instant, Snapshot};
use crate::store::Patience;
use crate::table::HudiTable;
use crate::wire::{List, Maybe, wire_record};
use crate::writes;

const HEARTBEAT_FOLDER: &str = ".hoodie/.heartbeat";
const MARKER_FOLDER: &str = ".hoodie/.temp";
/// Most folders of one marker tree that are listed. Direct markers lie in one folder per partition.
const MARKER_FOLDERS_MAX: usize = 256;
/// Largest rollback plan or metadata: they list every file.
const ROLLBACK_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Most rollbacks that are remembered.
const ROLLBACKS_KEPT_MAX: usize = 1_000;

/// Newest change among the inflight file, the marker folder and the heartbeat of one instant.
pub(crate) async fn last_sign_of_life(
    table: &HudiTable,
    snapshot: &Snapshot,
    instant: &str,
) -> Result<Option<DateTime<Utc>>, Error> {
    const OPERATION: &str = "look for signs of life";
    let mut newest: Option<DateTime<Utc>> = None;
    let mut see = |at: Option<DateTime<Utc>>| newest = newest.max(at);
    // The snapshot may be old: the file as it is now.
    for file in &snapshot.files {
        let name = parse_timeline_name(&file.name);
        if name.is_some_and(|name| name.requested == instant && name.state == InstantState::Inflight) {
            let now = table
                .store()
                .head(&format!("{}/{}", snapshot.properties.timeline_path, file.name), OPERATION)
                .await?;
            see(now.and_then(|entry| entry.modified).max(file.modified));
        }
    }
    let heartbeat = table.store().head(&format!("{HEARTBEAT_FOLDER}/{instant}"), OPERATION).await?;
    see(heartbeat.and_then(|entry| entry.modified));
    let folder = format!("{MARKER_FOLDER}/{instant}");
    let own = table.store().head(&folder, OPERATION).await?;
    see(own.and_then(|entry| entry.modified));
    let mut to_list = vec![folder];
    let mut n_listed = 0;
    while let Some(folder) = to_list.pop() {
        if n_listed >= MARKER_FOLDERS_MAX {
            break;
        }
        n_listed += 1;
        for entry in table.store().list_if_there(&folder, OPERATION).await?.unwrap_or_default() {
            see(entry.modified);
            if entry.is_folder {
                to_list.push(format!("{folder}/{}", entry.name));
            }
        }
    }
    Ok(newest)
}

/// `.hoodie/lock` of the file system lock provider.
pub(crate) async fn lock_file(table: &HudiTable) -> Result<Option<Entry>, Error> {
    table.store().head(".hoodie/lock", "look for the table's lock file").await
}

/// Writes under way that have no heartbeat file.
pub(crate) async fn writes_without_heartbeat(
    table: &HudiTable,
    snapshot: &Snapshot,
) -> Result<Vec<String>, Error> {
    let is_write = |instant: &&Instant| {
        instant.state != InstantState::Completed
            && match instant.action {
                HudiAction::Commit | HudiAction::DeltaCommit => true,
                HudiAction::ReplaceCommit => snapshot.is_pending_replace_write(&instant.requested),
                _ => false,
            }
    };
    let writes: Vec<&Instant> = snapshot.instants.iter().filter(is_write).collect();
    if writes.is_empty() {
        return Ok(Vec::new());
    }
    let beats =
        table.store().list_if_there(HEARTBEAT_FOLDER, "list the heartbeats").await?.unwrap_or_default();
    Ok(writes
        .into_iter()
        .filter(|write| !beats.iter().any(|beat| beat.name == write.requested))
        .map(|write| write.requested.clone())
        .collect())
}

wire_record! {
    struct RollbackPlanWire {
        instant_to_rollback: Maybe<InstantInfoWire> = "instantToRollback",
    }
}

wire_record! {
    struct RollbackMetadataWire {
        commits_rollback: List<String> = "commitsRollback",
        instants_rollback: List<InstantInfoWire> = "instantsRollback",
    }
}

wire_record! {
    struct InstantInfoWire {
        commit_time: Maybe<String> = "commitTime",
    }
}

/// Instants that rollbacks name, by the file that says it.
pub(crate) type RollbackCache = HashMap<String, Vec<String>>;

/// Rollback instants that name `instant`.
pub(crate) async fn rollbacks_of(
    table: &HudiTable,
    snapshot: &Snapshot,
    instant: &str,
) -> Result<Vec<String>, Error> {
    let patience = Patience::new();
    let mut naming = Vec::new();
    for rollback in snapshot.instants.iter().filter(|i| i.action == HudiAction::Rollback) {
        let is_completed = rollback.state == InstantState::Completed;
        let files = snapshot.files.iter().filter(|file| {
            parse_timeline_name(&file.name).is_some_and(|name| {
                let due = if is_completed { InstantState::Completed } else { InstantState::Requested };
                name.requested == rollback.requested
                    && name.action == HudiAction::Rollback
                    && name.state == due
            })
        });
        for file in files {
            if names_in(table, snapshot, file, is_completed, &patience)
                .await?
                .iter()
                .any(|name| name == instant)
            {
                naming.push(rollback.requested.clone());
            }
        }
    }
    naming.dedup();
    Ok(naming)
}

async fn names_in(
    table: &HudiTable,
    snapshot: &Snapshot,
    file: &Entry,
    is_completed: bool,
    patience: &Patience,
) -> Result<Vec<String>, Error> {
    const OPERATION: &str = "read the rollback";
    if let Some(known) = table.with_caches(|caches| caches.rollbacks.get(&file.name).cloned()) {
        return Ok(known);
    }
    let relative = format!("{}/{}", snapshot.properties.timeline_path, file.name);
    let decode = if is_completed { decode_metadata } else { decode_plan };
    let read = table.store().read_decoded(&relative, ROLLBACK_BYTES_MAX, OPERATION, patience, decode).await;
    let names = match read {
        // Rolled on since the snapshot: the next look shows what it became.
        Err(e) if e.kind() == ErrorKind::NotFound => return Err(e.with_hint("look again")),
        other => other?,
    };
    table.with_caches(|caches| {
        if caches.rollbacks.len() >= ROLLBACKS_KEPT_MAX {
            caches.rollbacks.clear();
        }
        caches.rollbacks.insert(file.name.clone(), names.clone());
    });
    Ok(names)
}

fn decode_plan(bytes: &[u8]) -> Result<Vec<String>, Fault> {
    let wire: RollbackPlanWire = writes::decode_either(bytes)?;
    Ok(wire.instant_to_rollback.0.and_then(|info| info.commit_time.0).into_iter().collect())
}

fn decode_metadata(bytes: &[u8]) -> Result<Vec<String>, Fault> {
    let wire: RollbackMetadataWire = writes::decode_either(bytes)?;
    let mut names: Vec<String> = wire.commits_rollback.items().collect();
    names.extend(wire.instants_rollback.items().filter_map(|info| info.commit_time.0));
    Ok(names)
}
