//! Managers are stateless and Services are leader-only: the rules that a name promises.

use crate::repo::SourceFile;
use crate::tidy::Finding;
use crate::tidy::source::{balanced, body_of, code_only, identifier};

const MANAGERS: &str = "crates/core/src/manager";
const SERVICES: &str = "crates/core/src/service";
const API: &str = "crates/server/src/api";
/// A Manager may hold stores, engines, a clock, settings; state of its own it may not.
const STATEFUL: [&str; 11] = [
    "Mutex",
    "RwLock",
    "Atomic",
    "Sender",
    "Receiver",
    "JoinHandle",
    "JoinSet",
    "RefCell",
    "OnceCell",
    "OnceLock",
    "Notify",
];

/// Checks one Rust file.
pub(crate) fn check(file: &SourceFile) -> Vec<Finding> {
    if !file.is_rust() {
        return Vec::new();
    }
    let code = code_only(&file.text);
    let mut findings = Vec::new();
    if is_under(&file.path, API) {
        findings.extend(code.match_indices("service::").filter(|(at, _)| is_core_service(&code, *at)).map(
            |(at, _)| {
                let text = "the API may not reach Services; go through a Manager (R1)";
                Finding::error(&file.path, line_of(&code, at), text)
            },
        ));
    }
    if is_under(&file.path, MANAGERS) {
        findings.extend(
            structs(&code)
                .filter(|found| found.name.ends_with("Manager"))
                .flat_map(|found| stateful(file, &found)),
        );
    }
    if file.path.starts_with("crates/core/src/") {
        findings.extend(structs(&code).filter_map(|found| misplaced(file, &found)));
        findings.extend(services(file, &code));
    }
    findings
}

/// `tower_service::` and the like are other words.
fn is_core_service(code: &str, at: usize) -> bool {
    !code.get(..at).unwrap_or_default().ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

fn is_under(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/') || rest == ".rs")
}

struct Struct<'a> {
    name: &'a str,
    line: usize,
    fields: &'a str,
}

fn structs(code: &str) -> impl Iterator<Item = Struct<'_>> {
    code.match_indices("struct ").filter_map(|(at, word)| {
        let before = code.get(..at)?;
        let after = code.get(at + word.len()..)?;
        let name = identifier(after);
        if name.is_empty() || before.ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            return None;
        }
        let fields = body_of(after).or_else(|| tuple_of(after)).unwrap_or_default();
        Some(Struct { name, line: line_of(code, at), fields })
    })
}

fn tuple_of(item: &str) -> Option<&str> {
    let open = item.find(['(', ';'])?;
    let from = item.get(open..)?;
    if from.starts_with(';') { None } else { from.get(..balanced(from)?) }
}

fn stateful(file: &SourceFile, found: &Struct<'_>) -> Vec<Finding> {
    let words = found.fields.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    let held = words.filter(|word| {
        STATEFUL.iter().any(|kind| word == kind || (*kind == "Atomic" && word.starts_with(kind)))
    });
    held.map(|word| {
        let text = format!("{} holds a {word}; a Manager is stateless (R3)", found.name);
        Finding::error(&file.path, found.line, text)
    })
    .collect()
}

fn misplaced(file: &SourceFile, found: &Struct<'_>) -> Option<Finding> {
    let (word, folder) = match found.name {
        name if name.ends_with("Manager") => ("Manager", MANAGERS),
        name if name.ends_with("Service") => ("Service", SERVICES),
        _ => return None,
    };
    let text = format!("{} is called a {word} and must live in {folder} (R3, R6)", found.name);
    (!is_under(&file.path, folder)).then(|| Finding::error(&file.path, found.line, text))
}

/// What the leader runs is called a Service.
fn services(file: &SourceFile, code: &str) -> Vec<Finding> {
    let implementation = "LeaderService for ";
    let found = code.match_indices(implementation).filter(|_| is_under(&file.path, SERVICES));
    let names =
        found.map(|(at, _)| (at, identifier(code.get(at + implementation.len()..).unwrap_or_default())));
    names
        .filter(|(_, name)| !name.is_empty() && !name.ends_with("Service"))
        .map(|(at, name)| {
            Finding::error(
                &file.path,
                line_of(code, at),
                format!("{name} is a LeaderService and must be called …Service (R6)"),
            )
        })
        .collect()
}

fn line_of(code: &str, at: usize) -> usize {
    code.get(..at).unwrap_or_default().matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{file, shown};

    #[test]
    fn manager_without_state_passes() {
        let good = "pub struct QueueManager { store: Arc<dyn QueueStore>, clock: Arc<dyn Clock>, wake: Wake }\n\
            struct Helper { x: Mutex<u8> }\n";
        assert_eq!(shown(&check(&file("crates/core/src/manager/queue.rs", good))), Vec::<String>::new());
    }

    #[test]
    fn manager_with_state_is_named() {
        for field in
            ["x: tokio::sync::Mutex<u8>", "n: AtomicU64", "s: mpsc::Sender<()>", "t: Option<JoinHandle<()>>"]
        {
            let code = format!("pub struct XManager {{\n    {field},\n}}\n");
            assert_eq!(check(&file("crates/core/src/manager/x.rs", &code)).len(), 1, "{field}");
        }
        assert_eq!(check(&file("crates/core/src/manager/x.rs", "pub struct XManager(RwLock<u8>);")).len(), 1);
    }

    #[test]
    fn names_belong_to_their_folders() {
        assert_eq!(check(&file("crates/core/src/store/x.rs", "pub struct XManager;")).len(), 1);
        assert_eq!(check(&file("crates/core/src/manager/x.rs", "pub struct XService { a: u8 }")).len(), 1);
        assert!(
            check(&file("crates/core/src/service/x.rs", "pub struct XService { a: Mutex<u8> }")).is_empty()
        );
        let wrong = "impl LeaderService for Looker {}\nimpl LeaderService for LookService {}\n";
        assert_eq!(check(&file("crates/core/src/service/x.rs", wrong)).len(), 1);
    }

    #[test]
    fn api_may_not_reach_services() {
        let code = "use tms_core::service::X;\nuse tower_service::Service;\n// service::\n";
        assert_eq!(check(&file("crates/server/src/api/tables.rs", code)).len(), 1);
        assert_eq!(check(&file("crates/server/src/api.rs", code)).len(), 1);
        assert!(check(&file("crates/server/src/assembly.rs", code)).is_empty());
    }
}
