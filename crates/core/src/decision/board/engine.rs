//! Which engine an instance runs on, and the limits that hold now.

use std::collections::BTreeMap;

use crate::model::id::{EngineName, QueueName};
use crate::model::instance::Instance;
use crate::model::queue::Queue;

/// What matters of one engine for choosing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineLimit {
    /// Attempts that may be live at once, suspect and unknown ones included.
    pub running_max: u32,
    /// Engine families that it serves, such as `spark`; empty = all.
    pub families: &'static [&'static str],
    /// Nothing real runs; it takes every family that no other engine serves.
    pub is_simulation: bool,
}

/// The limits that hold now. A queue that is not listed has the usual settings.
#[derive(Clone, Copy, Debug)]
pub struct Limits<'a> {
    /// Queues by name.
    pub queues: &'a BTreeMap<QueueName, Queue>,
    /// Engines by name.
    pub engines: &'a BTreeMap<EngineName, EngineLimit>,
}

/// Family of requests that name no engine.
const FAMILY_DEFAULT: &str = "spark";

/// Returns the engine of an instance; none = `parked(no_engine)`.
///
/// A queue's named engine wins. Else the request's `execution_engine` decides, which is an engine's name or a family; a
/// request that names none gets the only engine, or the family `spark`. An engine that serves the family wins over one that
/// takes all.
#[must_use]
pub fn engine_for(instance: &Instance, limits: &Limits<'_>) -> Option<EngineName> {
    engine_of(&instance.queue, instance.execution_engine.as_deref(), limits).cloned()
}

/// Says why an instance has no engine, for people.
#[must_use]
pub fn no_engine_for(instance: &Instance) -> String {
    format!(
        "no configured engine serves {:?}",
        instance.execution_engine.as_deref().unwrap_or(FAMILY_DEFAULT)
    )
}

pub(super) fn engine_of<'a>(
    queue: &QueueName,
    execution_engine: Option<&str>,
    limits: &Limits<'a>,
) -> Option<&'a EngineName> {
    if let Some(named) = limits.queues.get(queue).and_then(|queue| queue.engine.as_ref()) {
        return limits.engines.get_key_value(named).map(|(name, _)| name);
    }
    let wanted = execution_engine.map(str::trim).filter(|wanted| !wanted.is_empty());
    match wanted {
        Some(wanted) => by_name(wanted, limits).or_else(|| by_family(wanted, limits)),
        None if limits.engines.len() == 1 => limits.engines.keys().next(),
        None => by_family(FAMILY_DEFAULT, limits),
    }
}

fn by_name<'a>(wanted: &str, limits: &Limits<'a>) -> Option<&'a EngineName> {
    limits.engines.keys().find(|name| name.as_str() == wanted)
}

fn by_family<'a>(wanted: &str, limits: &Limits<'a>) -> Option<&'a EngineName> {
    let serves =
        |engine: &EngineLimit| engine.families.iter().any(|family| family.eq_ignore_ascii_case(wanted));
    let first = |takes: &dyn Fn(&EngineLimit) -> bool| {
        limits.engines.iter().find(|(_, engine)| takes(engine)).map(|(name, _)| name)
    };
    first(&serves).or_else(|| first(&|engine| engine.is_simulation || engine.families.is_empty()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const SPARK: EngineLimit = EngineLimit { running_max: 1, families: &["spark"], is_simulation: false };
    const FLINK: EngineLimit = EngineLimit { running_max: 1, families: &["flink"], is_simulation: false };
    const SIMULATED: EngineLimit = EngineLimit { running_max: 1, families: &[], is_simulation: true };

    fn check(
        engines: &[(&str, EngineLimit)],
        named: Option<&str>,
        wanted: Option<&str>,
        expected: Option<&str>,
    ) {
        let engines: BTreeMap<EngineName, EngineLimit> =
            engines.iter().map(|(name, engine)| (name.parse().unwrap(), *engine)).collect();
        let mut queue = Queue::new(QueueName::default());
        queue.engine = named.map(|name| name.parse().unwrap());
        let queues = BTreeMap::from([(queue.name.clone(), queue)]);
        let limits = Limits { queues: &queues, engines: &engines };
        let found = engine_of(&QueueName::default(), wanted, &limits);
        assert_eq!(found.map(EngineName::as_str), expected, "{named:?} {wanted:?}");
    }

    #[test]
    fn a_queues_engine_wins() {
        check(&[("a", SPARK), ("b", FLINK)], Some("b"), Some("spark"), Some("b"));
        check(&[("a", SPARK)], Some("missing"), Some("spark"), None);
    }

    #[test]
    fn a_request_names_a_family_or_an_engine() {
        let engines = [("a", SIMULATED), ("f", FLINK), ("s", SPARK), ("t", SPARK)];
        check(&engines, None, Some("spark"), Some("s"));
        check(&engines, None, Some("SPARK "), Some("s"));
        check(&engines, None, Some("flink"), Some("f"));
        check(&engines, None, Some("t"), Some("t"));
        check(&engines, None, Some("presto"), Some("a"));
        check(&engines[1..], None, Some("presto"), None);
        check(&[], None, Some("spark"), None);
    }

    #[test]
    fn a_request_without_engine_gets_the_only_one_or_spark() {
        check(&[("f", FLINK)], None, None, Some("f"));
        check(&[("f", FLINK), ("s", SPARK)], None, None, Some("s"));
        check(&[("f", FLINK), ("s", SPARK)], None, Some(""), Some("s"));
        check(&[("f", FLINK), ("g", FLINK)], None, None, None);
        check(&[], None, None, None);
    }
}
