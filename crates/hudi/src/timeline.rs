//! From the files of a timeline folder to instants. Pure.

use std::collections::BTreeMap;

use crate::listing::Entry;
use crate::names::{HudiAction, InstantState, TimelineName, parse_timeline_name};
use crate::snapshot::Instant;

/// The properties file, which lies among the instants in layout 1.
pub(crate) const PROPERTIES_FILE: &str = "hoodie.properties";

/// Keeps the timeline files of a listing (and `hoodie.properties`), sorted by name. Everything else a folder
/// holds, such as a writer's temporary `<name>.<uuid>`, is no sign of a change.
pub(crate) fn timeline_files(entries: Vec<Entry>) -> Vec<Entry> {
    let mut files: Vec<Entry> = entries
        .into_iter()
        .filter(|entry| !entry.is_folder)
        .filter(|entry| entry.name == PROPERTIES_FILE || parse_timeline_name(&entry.name).is_some())
        .collect();
    files.sort();
    files
}

/// Folds files into instants, ascending by requested time, then by the finished action's word.
pub(crate) fn fold(files: &[Entry], layout: u32) -> Vec<Instant> {
    let mut groups: BTreeMap<(String, String), Vec<TimelineName>> = BTreeMap::new();
    for name in files.iter().filter_map(|entry| parse_timeline_name(&entry.name)) {
        let key = (name.requested.clone(), name.action.finished().as_str().to_owned());
        groups.entry(key).or_default().push(name);
    }
    groups.into_values().filter_map(|names| fold_one(names, layout)).collect()
}

fn fold_one(mut names: Vec<TimelineName>, layout: u32) -> Option<Instant> {
    let is_service = |action: &HudiAction| action.finished() != *action;
    names.sort_by_key(|name| (name.state, name.completed.clone(), is_service(&name.action)));
    let pending_action = names
        .iter()
        .filter(|name| name.state != InstantState::Completed)
        .map(|name| &name.action)
        .max_by_key(|action| is_service(action))
        .cloned();
    let n_completed = names.iter().filter(|name| name.state == InstantState::Completed).count();
    let last = names.pop()?;
    Some(Instant {
        requested: last.requested,
        action: last.action,
        state: last.state,
        completed: last.completed.filter(|_| layout >= 2),
        completed_files: u32::try_from(n_completed).unwrap_or(u32::MAX),
        pending_action,
    })
}
