//! [`TimelineSource`] over the reader of Hudi tables: keeps readers, maps words and errors in one place.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tms_hudi::{HudiAction, HudiTable, InstantState, Listing, Look, PlanAction, Snapshot};

use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind};
use crate::model::action::{Action, Instant};
use crate::model::attempt::VersionsSeen;
use crate::model::instance::PlanSize;
use crate::model::path::BasePath;
use crate::model::table::TableFacts;
use crate::timeline::{Overtaken, PlanContent, PlanSeen, Sight, TimelineSource};

/// Readers that are kept with their last look; beyond it an arbitrary one is dropped and read anew later.
const TABLES_KEPT_MAX: usize = 20_000;
/// Longest single question to a table.
const QUESTION_MAX: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Known {
    table: Arc<HudiTable>,
    last: Mutex<Option<(Arc<Snapshot>, Arc<Sight>)>>,
}

/// Reads Hudi tables.
#[derive(Debug)]
pub struct HudiTimelines {
    listing: Arc<dyn Listing>,
    /// The only scheme that the listing reads; none: it takes every path.
    scheme: Option<&'static str>,
    known: Mutex<HashMap<BasePath, Arc<Known>>>,
}

impl HudiTimelines {
    /// Makes a source that lists and reads through `listing`.
    #[must_use]
    pub fn new(listing: Arc<dyn Listing>) -> Self {
        Self { listing, scheme: None, known: Mutex::new(HashMap::new()) }
    }

    /// Makes a source over the local file system.
    #[must_use]
    pub fn local() -> Self {
        Self { scheme: Some("file"), ..Self::new(Arc::new(tms_hudi::LocalListing)) }
    }

    fn known(&self, path: &BasePath) -> Arc<Known> {
        let mut known = self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(found) = known.get(path) {
            return Arc::clone(found);
        }
        if known.len() >= TABLES_KEPT_MAX
            && let Some(victim) = known.keys().next().cloned()
        {
            known.remove(&victim);
        }
        let table = Arc::new(HudiTable::new(Arc::clone(&self.listing), path.as_str()));
        let fresh = Arc::new(Known { table, last: Mutex::new(None) });
        known.insert(path.clone(), Arc::clone(&fresh));
        fresh
    }

    async fn snapshot(&self, path: &BasePath) -> Result<(Arc<Known>, Arc<Snapshot>, Arc<Sight>), Error> {
        let known = self.known(path);
        let previous = known.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        let look = known.table.look(previous.as_ref().map(|(s, _)| s));
        let look = bounded(path, "look at the table", look).await?;
        let (snapshot, sight) = match (look, previous) {
            (Look::Unchanged, Some(same)) => same,
            (Look::Unchanged, None) => {
                return Err(Error::new(ErrorKind::Unexpected, "look at the table").with("table", path));
            }
            // Kept from the first look: before a job they are read anew, and a look must cost no more than its listing.
            (Look::Changed(snapshot), Some((_, before))) => {
                let sight = Arc::new(sight_of(path, &snapshot, before.facts.metadata_table));
                (snapshot, sight)
            }
            (Look::Changed(snapshot), None) => {
                let metadata =
                    bounded(path, "read the metadata table's properties", known.table.metadata_properties());
                let metadata = metadata.await?.map(|p| (p.version, p.layout));
                let sight = Arc::new(sight_of(path, &snapshot, metadata));
                (snapshot, sight)
            }
        };
        *known.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
            Some((Arc::clone(&snapshot), Arc::clone(&sight)));
        Ok((known, snapshot, sight))
    }

    async fn without_heartbeat(&self, path: &BasePath) -> Result<Vec<String>, Error> {
        let (known, snapshot, _) = self.snapshot(path).await?;
        bounded(path, "look for heartbeats", known.table.writes_without_heartbeat(&snapshot)).await
    }
}

async fn bounded<T>(
    path: &BasePath,
    what: &'static str,
    question: impl Future<Output = Result<T, tms_hudi::Error>>,
) -> Result<T, Error> {
    match tokio::time::timeout(QUESTION_MAX, question).await {
        Ok(answer) => answer.map_err(|e| map_error(path, what, e)),
        Err(_) => Err(Error::new(ErrorKind::Unavailable, what)
            .with("table", path)
            .with("after", format!("{QUESTION_MAX:?}"))
            .hint("check that the table's storage answers")),
    }
}

/// The one place that turns the reader's errors into ours. The reader's text is whole, with file, cause and advice: its
/// causes would only say it again.
fn map_error(path: &BasePath, what: &'static str, error: tms_hudi::Error) -> Error {
    let kind = match error.kind() {
        tms_hudi::ErrorKind::NotFound => ErrorKind::NotFound,
        tms_hudi::ErrorKind::Unsupported => ErrorKind::Unsupported,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, what).with("table", path).with("reason", error)
}

fn action_of(action: PlanAction) -> Action {
    match action {
        PlanAction::Compaction => Action::Compaction,
        PlanAction::LogCompaction => Action::LogCompaction,
        PlanAction::Clustering => Action::Clustering,
        PlanAction::Clean => Action::Clean,
    }
}

fn plan_action_of(action: Action) -> PlanAction {
    match action {
        Action::Compaction => PlanAction::Compaction,
        Action::LogCompaction => PlanAction::LogCompaction,
        Action::Clustering => PlanAction::Clustering,
        Action::Clean => PlanAction::Clean,
    }
}

/// The services that a completed instant can be. In layout 1 the files of a finished plan no longer say which
/// service wrote them once their pending files are gone, so the family of the completed word decides.
fn services_of(instant: &tms_hudi::Instant) -> &'static [Action] {
    match (&instant.action, &instant.pending_action) {
        (HudiAction::Clean, _) => &[Action::Clean],
        (HudiAction::Commit, Some(HudiAction::Compaction) | None) => &[Action::Compaction],
        (HudiAction::DeltaCommit, Some(HudiAction::LogCompaction) | None) => &[Action::LogCompaction],
        (HudiAction::ReplaceCommit, _) | (HudiAction::Clustering, _) => &[Action::Clustering],
        _ => &[],
    }
}

fn sight_of(path: &BasePath, snapshot: &Snapshot, metadata: Option<(u32, u32)>) -> Sight {
    let properties = snapshot.properties();
    let mut completed = std::collections::BTreeMap::new();
    let mut commits = Vec::new();
    let mut upheaval = None;
    for instant in snapshot.instants() {
        let Ok(requested) = instant.requested.parse::<Instant>() else { continue };
        if instant.state == InstantState::Completed {
            for service in services_of(instant) {
                completed.insert((*service, requested.clone()), instant.completed_files);
            }
            if instant.is_completed_write() {
                commits.push(requested);
            }
        } else if matches!(instant.action, HudiAction::Restore | HudiAction::Savepoint) {
            upheaval = Some(requested);
        }
    }
    let pending = snapshot.pending().iter().filter_map(plan_seen).collect();
    Sight {
        facts: TableFacts {
            table_version: properties.version,
            layout: properties.layout,
            table_type: properties.table_type.as_str().to_owned(),
            metadata_table: metadata,
        },
        name: Some(properties.name.clone()).filter(|n| !n.is_empty()),
        database: properties.database.clone().filter(|d| !d.is_empty()),
        is_metadata_table: path.as_str().ends_with("/.hoodie/metadata"),
        pending,
        completed,
        commits,
        upheaval,
    }
}

fn plan_seen(plan: &tms_hudi::PendingPlan) -> Option<PlanSeen> {
    Some(PlanSeen {
        action: action_of(plan.action),
        instant: plan.instant.parse().ok()?,
        is_inflight: plan.state == InstantState::Inflight,
        content: match &plan.plan {
            Ok(content) => Ok(PlanContent {
                size: PlanSize {
                    file_groups: content.file_groups,
                    log_files: content.log_files,
                    bytes: content.bytes,
                    partitions: content.partitions,
                },
                outside: content.outside_base_path.first().cloned(),
            }),
            Err(error) => Err(error.to_string()),
        },
    })
}

#[async_trait]
impl TimelineSource for HudiTimelines {
    fn reads(&self, scheme: &str) -> bool {
        self.scheme.is_none_or(|only| only == scheme)
    }

    async fn look(&self, path: &BasePath) -> Result<Arc<Sight>, Error> {
        Ok(self.snapshot(path).await?.2)
    }

    async fn overtaken(&self, path: &BasePath, instant: &Instant) -> Overtaken {
        let (known, snapshot, _) = match self.snapshot(path).await {
            Ok(found) => found,
            Err(e) => return Overtaken::Unknown { reason: e.to_string() },
        };
        match tokio::time::timeout(QUESTION_MAX, known.table.overtaken(&snapshot, instant.as_str())).await {
            Ok(tms_hudi::Overtaken::No) => Overtaken::No,
            Ok(tms_hudi::Overtaken::Yes { instant, file_group }) => Overtaken::Yes { instant, file_group },
            Ok(tms_hudi::Overtaken::Unknown { reason }) => Overtaken::Unknown { reason },
            Err(_) => Overtaken::Unknown { reason: format!("no answer within {QUESTION_MAX:?}") },
        }
    }

    async fn completed_in_history(
        &self,
        path: &BasePath,
        action: Action,
        instant: &Instant,
    ) -> Result<bool, Error> {
        let (known, snapshot, _) = self.snapshot(path).await?;
        let entry =
            bounded(path, "read the history", known.table.in_history(&snapshot, instant.as_str())).await?;
        let family = match plan_action_of(action) {
            PlanAction::Compaction => HudiAction::Commit,
            PlanAction::LogCompaction => HudiAction::DeltaCommit,
            PlanAction::Clustering => HudiAction::ReplaceCommit,
            PlanAction::Clean => HudiAction::Clean,
        };
        Ok(entry.is_some_and(|e| e.state == InstantState::Completed && e.action.finished() == family))
    }

    async fn sign_of_life(&self, path: &BasePath, instant: &Instant) -> Result<Option<Timestamp>, Error> {
        let (known, snapshot, _) = self.snapshot(path).await?;
        bounded(path, "look for signs of life", known.table.last_sign_of_life(&snapshot, instant.as_str()))
            .await
    }

    async fn lock_since(&self, path: &BasePath) -> Result<Option<Timestamp>, Error> {
        let known = self.known(path);
        let entry = bounded(path, "look at the lock file", known.table.lock_file()).await?;
        Ok(entry.and_then(|e| e.modified))
    }

    async fn real_path(&self, path: &BasePath) -> Result<Option<String>, Error> {
        let known = self.known(path);
        bounded(path, "find out where the table really lies", known.table.real_path()).await
    }

    async fn writes_without_heartbeat(&self, path: &BasePath) -> Result<Vec<String>, Error> {
        let mut suspects = self.without_heartbeat(path).await?;
        if !suspects.is_empty() {
            // Timeline and heartbeats are two listings: a write that began or ended between them looks the same. One that is
            // not locked is found twice.
            let again = self.without_heartbeat(path).await?;
            suspects.retain(|write| again.contains(write));
        }
        Ok(suspects)
    }

    async fn versions(&self, path: &BasePath) -> Result<VersionsSeen, Error> {
        let known = self.known(path);
        let own = bounded(path, "read the properties", known.table.properties()).await?;
        let metadata =
            bounded(path, "read the metadata table's properties", known.table.metadata_properties());
        let metadata = metadata.await?;
        Ok(VersionsSeen {
            table: (own.version, own.layout),
            metadata_table: metadata.map(|p| (p.version, p.layout)),
        })
    }

    async fn rollbacks_of(&self, path: &BasePath, instant: &Instant) -> Result<Vec<String>, Error> {
        let (known, snapshot, _) = self.snapshot(path).await?;
        bounded(path, "look for rollbacks", known.table.rollbacks_of(&snapshot, instant.as_str())).await
    }
}
