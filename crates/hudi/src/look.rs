//! One look at a table's active timeline: one listing, and the plans that are not known yet.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::{FutureExt, StreamExt};

use crate::error::{Error, ErrorKind};
use crate::fault::Fault;
use crate::listing::Entry;
use crate::names::{HudiAction, InstantState};
use crate::plan::{self, Plan, PlanAction};
use crate::properties::TableProperties;
use crate::snapshot::{Instant, Look, PendingPlan, Snapshot};
use crate::store::Patience;
use crate::table::HudiTable;
use crate::timeline::{PROPERTIES_FILE, fold, timeline_files};

/// Most times a look starts anew because the timeline changed under it.
const LOOK_ROUNDS_MAX: u32 = 4;
/// Plans read at once.
const PLANS_AT_ONCE: usize = 8;

/// A plan file of an earlier look and what came of it.
#[derive(Clone, Debug)]
pub(crate) struct PlanFile {
    entry: Entry,
    outcome: Outcome,
}

#[derive(Clone, Debug)]
enum Outcome {
    Plan(Arc<Plan>),
    /// A `replacecommit` that is a write, not a clustering.
    Write,
    Bad(Error),
}

impl PlanFile {
    /// True when the same bytes may be readable now although the listing shows no change.
    fn is_worth_another_try(&self) -> bool {
        match &self.outcome {
            Outcome::Plan(_) | Outcome::Write => false,
            Outcome::Bad(e) => match e.kind() {
                ErrorKind::PermissionDenied | ErrorKind::Unreachable | ErrorKind::NotFound => true,
                ErrorKind::NotReadableYet => self.entry.size > 0,
                _ => false,
            },
        }
    }

    fn is_bad(&self) -> bool {
        matches!(self.outcome, Outcome::Bad(_))
    }
}

/// A pending instant of a service, and its plan file if the listing holds it.
struct Wanted {
    action: PlanAction,
    is_replace: bool,
    instant: Instant,
    file_name: String,
    entry: Option<Entry>,
}

pub(crate) async fn look(table: &HudiTable, previous: Option<&Arc<Snapshot>>) -> Result<Look, Error> {
    let patience = Patience::new();
    let mut properties = match previous {
        Some(previous) => table.newest_properties().unwrap_or_else(|| Arc::clone(&previous.properties)),
        None => table.read_properties(&patience).await?,
    };
    let mut plan_files: BTreeMap<String, PlanFile> = BTreeMap::new();
    let mut round = 0;
    loop {
        round += 1;
        let files;
        (files, properties) = list_timeline(table, properties, previous, &patience).await?;
        let same = previous.filter(|p| p.files == files && p.properties == properties);
        if same.is_some_and(|same| !same.plan_files.values().any(PlanFile::is_worth_another_try)) {
            return Ok(Look::Unchanged);
        }
        if let Some(previous) = previous.filter(|_| round == 1) {
            plan_files.clone_from(&previous.plan_files);
        }
        let tried_again: Vec<String> = plan_files
            .iter()
            .filter(|(_, f)| f.is_worth_another_try())
            .map(|(name, _)| name.clone())
            .collect();
        let instants = fold(&files, properties.layout);
        let wanted = wanted_plans(&instants, &files);
        let is_last_round = round >= LOOK_ROUNDS_MAX;
        let is_whole =
            read_plans(table, &properties, &wanted, &mut plan_files, &patience, is_last_round).await;
        if !is_whole && patience.wait(0).await {
            continue;
        }
        if same.is_some() && tried_again.iter().all(|name| plan_files.get(name).is_none_or(PlanFile::is_bad))
        {
            return Ok(Look::Unchanged);
        }
        let pending = pending_plans(table, &properties, wanted, &plan_files);
        plan_files.retain(|name, _| files.binary_search_by(|file| file.name.cmp(name)).is_ok());
        return Ok(Look::Changed(Arc::new(Snapshot {
            base_path: table.base_path().to_owned(),
            properties,
            instants,
            pending,
            files,
            plan_files,
        })));
    }
}

/// Lists the timeline folder, and reads the properties again where the listing gives a reason to: they changed
/// (only layout 1 lists them among the instants), or the folder is missing or empty although instants stood there.
///
/// An empty listing proves nothing: it has to be seen twice, with the properties readable in between.
async fn list_timeline(
    table: &HudiTable,
    properties: Arc<TableProperties>,
    previous: Option<&Arc<Snapshot>>,
    patience: &Patience,
) -> Result<(Vec<Entry>, Arc<TableProperties>), Error> {
    let Some(previous) = previous else {
        return Ok((list_once(table, &properties).await?, properties));
    };
    let listed = list_once(table, &properties).await;
    let is_suspect = match &listed {
        Ok(files) => {
            let is_empty = files.iter().all(|file| file.name == PROPERTIES_FILE);
            is_empty && !previous.instants.is_empty()
        }
        Err(e) => e.kind() == ErrorKind::NotFound,
    };
    let has_changed = |files: &[Entry]| {
        let entry_in = |files: &[Entry]| files.iter().find(|file| file.name == PROPERTIES_FILE).cloned();
        properties.layout < 2 && entry_in(files) != entry_in(&previous.files)
    };
    match listed {
        Ok(files) if !is_suspect && !has_changed(&files) => Ok((files, properties)),
        Ok(files) => {
            let now = table.read_properties(patience).await?;
            if is_suspect {
                patience.wait(0).await;
            } else if now.timeline_path == properties.timeline_path {
                return Ok((files, now));
            }
            Ok((list_once(table, &now).await?, now))
        }
        Err(e) if is_suspect => {
            let now = table.read_properties(patience).await?;
            if now.timeline_path == properties.timeline_path {
                return Err(e);
            }
            Ok((list_once(table, &now).await?, now))
        }
        Err(e) => Err(e),
    }
}

async fn list_once(table: &HudiTable, properties: &TableProperties) -> Result<Vec<Entry>, Error> {
    const OPERATION: &str = "list the timeline";
    let entries =
        table.store().list(&properties.timeline_path, OPERATION).await.map_err(|e| match e.kind() {
            ErrorKind::NotFound => {
                let detail = "hoodie.properties names this timeline folder, and it is not there";
                Error::new(ErrorKind::NotFound, OPERATION, e.path(), detail).with_hint(
                    "look again; if it stays so, the table is damaged: restore the folder from a copy",
                )
            }
            _ => e,
        })?;
    Ok(timeline_files(entries))
}

fn wanted_plans(instants: &[Instant], files: &[Entry]) -> Vec<Wanted> {
    let find = |name: &str| {
        files.binary_search_by(|file| file.name.as_str().cmp(name)).ok().and_then(|at| files.get(at)).cloned()
    };
    instants
        .iter()
        .filter(|instant| instant.state != InstantState::Completed)
        .filter_map(|instant| {
            let action = match instant.action {
                HudiAction::Compaction => PlanAction::Compaction,
                HudiAction::LogCompaction => PlanAction::LogCompaction,
                HudiAction::Clustering | HudiAction::ReplaceCommit => PlanAction::Clustering,
                HudiAction::Clean => PlanAction::Clean,
                _ => return None,
            };
            let file_name = format!("{}.{}.requested", instant.requested, instant.action);
            Some(Wanted {
                action,
                is_replace: instant.action == HudiAction::ReplaceCommit,
                instant: instant.clone(),
                entry: find(&file_name),
                file_name,
            })
        })
        .collect()
}

/// Reads the plans that are not known yet into `known`; false when one vanished since the listing, so that the
/// listing has to be made anew.
async fn read_plans(
    table: &HudiTable,
    properties: &TableProperties,
    wanted: &[Wanted],
    known: &mut BTreeMap<String, PlanFile>,
    patience: &Patience,
    is_last_round: bool,
) -> bool {
    let missing: Vec<(&Wanted, &Entry)> = wanted
        .iter()
        .filter_map(|w| w.entry.as_ref().map(|entry| (w, entry)))
        .filter(|(w, entry)| {
            known.get(&w.file_name).is_none_or(|had| had.entry != **entry || had.is_worth_another_try())
        })
        .collect();
    // Boxed: the borrow checker cannot see that a stream of closures over borrows is `Send` otherwise.
    let mut readings = Vec::with_capacity(missing.len());
    for (w, entry) in missing {
        let reading = async move {
            let outcome = read_plan(table, properties, w, patience).await;
            (w.file_name.clone(), PlanFile { entry: entry.clone(), outcome })
        };
        readings.push(reading.boxed());
    }
    let done: Vec<(String, PlanFile)> =
        futures::stream::iter(readings).buffered(PLANS_AT_ONCE).collect().await;
    let mut is_whole = true;
    for (name, file) in done {
        let has_vanished = matches!(&file.outcome, Outcome::Bad(e) if e.kind() == ErrorKind::NotFound);
        if has_vanished && !is_last_round {
            is_whole = false;
            known.remove(&name);
        } else {
            known.insert(name, file);
        }
    }
    is_whole
}

async fn read_plan(
    table: &HudiTable,
    properties: &TableProperties,
    wanted: &Wanted,
    patience: &Patience,
) -> Outcome {
    let file = format!("{}/{}", properties.timeline_path, wanted.file_name);
    let base = table.base_path().to_owned();
    let (action, is_replace) = (wanted.action, wanted.is_replace);
    let decode = move |bytes: &[u8]| -> Result<Option<Plan>, Fault> {
        match action {
            PlanAction::Compaction | PlanAction::LogCompaction => {
                plan::decode_compaction(bytes, &base).map(Some)
            }
            PlanAction::Clustering if is_replace => plan::decode_replace(bytes, &base),
            PlanAction::Clustering => plan::decode_clustering(bytes, &base).map(Some),
            PlanAction::Clean => plan::decode_clean(bytes, &base).map(Some),
        }
    };
    let operation = match action {
        PlanAction::Compaction => "read the compaction plan",
        PlanAction::LogCompaction => "read the log compaction plan",
        PlanAction::Clustering => "read the clustering plan",
        PlanAction::Clean => "read the clean plan",
    };
    let bytes_max = table.limits().plan_bytes_max;
    match table.store().read_decoded(&file, bytes_max, operation, patience, decode).await {
        Ok(Some(plan)) => Outcome::Plan(Arc::new(plan)),
        Ok(None) => Outcome::Write,
        // Older releases leave the `.requested` file of an insert overwrite empty; a clustering's never stays so.
        Err(e) if is_replace && e.kind() == ErrorKind::NotReadableYet => Outcome::Write,
        Err(e) => Outcome::Bad(e),
    }
}

fn pending_plans(
    table: &HudiTable,
    properties: &TableProperties,
    wanted: Vec<Wanted>,
    known: &BTreeMap<String, PlanFile>,
) -> Vec<PendingPlan> {
    let mut pending = Vec::new();
    for w in wanted {
        let plan = match known.get(&w.file_name).filter(|_| w.entry.is_some()).map(|file| &file.outcome) {
            Some(Outcome::Write) => continue,
            Some(Outcome::Plan(plan)) => Ok(Arc::clone(plan)),
            Some(Outcome::Bad(e)) => Err(e.clone()),
            None => {
                let path = table.store().path(&format!("{}/{}", properties.timeline_path, w.file_name));
                let detail = "the instant is inflight and its plan file is not there";
                Err(Error::new(ErrorKind::NotFound, "read the plan", path, detail)
                    .with_hint("look again; if it stays so, roll the instant back with Hudi"))
            }
        };
        pending.push(PendingPlan {
            action: w.action,
            instant: w.instant.requested,
            state: w.instant.state,
            plan,
        });
    }
    pending
}

impl Snapshot {
    /// True for a pending `replacecommit` whose plan says that it is a write.
    pub(crate) fn is_pending_replace_write(&self, requested: &str) -> bool {
        self.plan_files
            .get(&format!("{requested}.replacecommit.requested"))
            .is_some_and(|file| matches!(file.outcome, Outcome::Write))
    }
}
