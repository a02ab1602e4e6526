//! Property tests: whatever stands in a file, the answer is a value or a typed error, never a panic.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use tms_hudi::names::{instant_of_data_file, parse_timeline_name};
use tms_hudi::properties::parse_java_properties;
use tms_hudi::{HudiTable, LocalListing, PlanAction, TableProperties};

use crate::common::{MemoryListing, unpack_in_memory};
use crate::made::{BASE, Commit};

/// What is done to a file: bytes overwritten, cut, inserted.
#[derive(Clone, Debug)]
struct Damage {
    flips: Vec<(prop::sample::Index, u8)>,
    cut: Option<prop::sample::Index>,
    insert: Option<(prop::sample::Index, Vec<u8>)>,
}

fn damage() -> impl Strategy<Value = Damage> {
    let flips = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6);
    let cut = prop::option::weighted(0.3, any::<prop::sample::Index>());
    let piece = prop::collection::vec(any::<u8>(), 1..12);
    let insert = prop::option::weighted(0.3, (any::<prop::sample::Index>(), piece));
    (flips, cut, insert).prop_map(|(flips, cut, insert)| Damage { flips, cut, insert })
}

impl Damage {
    fn apply(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        for (at, byte) in &self.flips {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
        }
        if let Some((at, piece)) = &self.insert {
            let at = at.index(bytes.len() + 1);
            bytes.splice(at..at, piece.iter().copied());
        }
        if let Some(at) = &self.cut {
            bytes.truncate(at.index(bytes.len() + 1));
        }
        bytes
    }
}

/// Asks everything there is to ask; answers how many questions were answered well.
async fn ask_everything(listing: Arc<MemoryListing>) -> usize {
    let table = HudiTable::new(listing, BASE);
    let mut n_good = 0;
    let Ok(tms_hudi::Look::Changed(snapshot)) = table.look(None).await else { return 0 };
    n_good += snapshot.pending().iter().filter(|pending| pending.plan.is_ok()).count();
    for pending in snapshot.pending().iter().filter(|pending| pending.action == PlanAction::Clustering) {
        n_good += usize::from(table.overtaken(&snapshot, &pending.instant).await == tms_hudi::Overtaken::No);
    }
    n_good += usize::from(table.history(&snapshot).await.is_ok());
    n_good += usize::from(table.in_history(&snapshot, "20261130092805726").await.is_ok());
    n_good += usize::from(table.rollbacks_of(&snapshot, "1").await.is_ok());
    n_good += usize::from(table.last_sign_of_life(&snapshot, "1").await.is_ok());
    n_good + usize::from(table.metadata_properties().await.is_ok())
}

/// Real tables that hold every kind of file, without files that are never read.
static TABLES: LazyLock<Vec<BTreeMap<String, Vec<u8>>>> = LazyLock::new(|| {
    let names = [
        "h0150_v6_cow_pending_clustering",
        "h0150_v6_cow_rollback",
        "h0150_v6_cow_pending_clean",
        "h0150_v6_mor_archived",
        "h0150_v6_mor_pending_compaction",
        "h102_v8_cow_pending_clustering",
        "h120_v9_cow_inflight_clean",
        "h120_v9_cow_insert_overwrite_requested",
        "h120_v9_cow_rollback",
        "h120_v9_mor_archived",
        "h120_v9_mor_pending_logcompaction",
    ];
    names
        .iter()
        .map(|name| {
            let listing = unpack_in_memory(name);
            let is_read = |path: &String| path.contains("/.hoodie/") && !path.contains("/metadata/.hoodie/2");
            listing
                .paths()
                .into_iter()
                .filter(is_read)
                .map(|path| (path.clone(), listing.content(&path)))
                .collect()
        })
        .collect()
});

fn run(future: impl Future<Output = usize>) -> usize {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(future)
}

fn filled(files: &BTreeMap<String, Vec<u8>>) -> MemoryListing {
    let listing = MemoryListing::default();
    files.iter().for_each(|(path, content)| listing.put(path, content.clone()));
    listing
}

#[test]
fn undamaged_tables_answer_every_question() {
    for files in TABLES.iter() {
        assert!(run(ask_everything(Arc::new(filled(files)))) >= 5);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn damaged_files_of_real_tables_never_panic(
        table in any::<prop::sample::Index>(),
        file in any::<prop::sample::Index>(),
        damage in damage(),
    ) {
        let files = &TABLES[table.index(TABLES.len())];
        let listing = filled(files);
        let (path, content) = files.iter().nth(file.index(files.len())).unwrap();
        listing.put(path, damage.apply(content.clone()));
        run(ask_everything(Arc::new(listing)));
    }

    #[test]
    fn a_damaged_write_never_hides_behind_no(damage in damage()) {
        // A write whose metadata is damaged so that it can be read at all may say anything; one that cannot must
        // not be answered with no.
        let files = &TABLES[5];
        let listing = filled(files);
        let commit = Commit { files: &[("a", "f", "a/f_0_1.parquet")], replaced: &[] };
        let bytes = damage.apply(commit.avro());
        listing.put("/t/.hoodie/timeline/29990101000000000_29990101000000001.commit", bytes.clone());
        let is_readable = apache_avro::Reader::new(bytes.as_slice()).is_ok_and(|mut reader| reader.next().is_some_and(|value| value.is_ok()));
        let table = HudiTable::new(Arc::new(listing), BASE);
        let is_no = run(async {
            let tms_hudi::Look::Changed(snapshot) = table.look(None).await.unwrap() else { return 0 };
            let answer = table.overtaken(&snapshot, &snapshot.pending()[0].instant).await;
            usize::from(answer == tms_hudi::Overtaken::No)
        }) == 1;
        prop_assert!(is_readable || !is_no);
    }

    #[test]
    fn any_bytes_as_any_file_never_panic(
        table in any::<prop::sample::Index>(),
        file in any::<prop::sample::Index>(),
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        prefix in prop::sample::select(vec![&b""[..], b"Obj\x01", b"#HUDI#\0\0\0\0\0\0", b"PAR1", b"{", b"hoodie."]),
        suffix in prop::sample::select(vec![&b""[..], b"PAR1", b"}", b"\n"]),
    ) {
        let files = &TABLES[table.index(TABLES.len())];
        let listing = filled(files);
        let path = files.keys().nth(file.index(files.len())).unwrap();
        listing.put(path, [prefix, &bytes, suffix].concat());
        run(ask_everything(Arc::new(listing)));
    }
}

proptest! {
    #[test]
    fn any_file_name_is_read_without_a_panic(name in "\\PC*") {
        drop(parse_timeline_name(&name));
        let _instant = instant_of_data_file(&name);
        drop(LocalListing::local_path(&name));
    }

    #[test]
    fn names_near_to_real_ones_are_read_as_what_they_say(
        requested in "[0-9]{1,20}",
        completed in prop::option::of("[0-9]{1,20}"),
        action in "[a-z]{1,15}",
        ending in prop::sample::select(vec!["", ".requested", ".inflight"]),
    ) {
        let times = completed.as_ref().map_or(requested.clone(), |completed| format!("{requested}_{completed}"));
        let parsed = parse_timeline_name(&format!("{times}.{action}{ending}"));
        let is_pending = !ending.is_empty() || action == "inflight";
        let is_odd = (is_pending && completed.is_some()) || action == "requested" || (action == "inflight" && !ending.is_empty());
        match parsed {
            None => prop_assert!(is_odd),
            Some(parsed) => {
                prop_assert!(!is_odd);
                prop_assert_eq!(parsed.requested, requested);
                prop_assert_eq!(parsed.completed, completed);
                prop_assert_eq!(parsed.state == tms_hudi::InstantState::Completed, !is_pending);
            }
        }
        let sibling = format!("{times}.{action}{ending}.6f9619ff-8b86-d011");
        prop_assert!(parse_timeline_name(&sibling).is_none());
    }

    #[test]
    fn any_bytes_as_properties_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        drop(parse_java_properties(&bytes));
        drop(TableProperties::parse(&bytes, "/t/.hoodie/hoodie.properties"));
    }

    #[test]
    fn properties_written_with_escapes_are_read_back(pairs in prop::collection::btree_map("[a-zäß.:= #!\\\\]{1,12}", "[ -~äß😀\t]{0,20}", 0..8)) {
        let escape = |text: &str| -> String {
            let mut escaped = String::new();
            for unit in text.encode_utf16() {
                match u8::try_from(unit).ok().map(char::from) {
                    Some(c) if c.is_ascii_alphanumeric() || c == '.' => escaped.push(c),
                    Some('\t') => escaped.push_str("\\t"),
                    Some(c) if c.is_ascii() => escaped.extend(['\\', c]),
                    _ => escaped.push_str(&format!("\\u{unit:04x}")),
                }
            }
            escaped
        };
        let text: String = pairs.iter().map(|(key, value)| format!("{}={}\n", escape(key), escape(value))).collect();
        prop_assert_eq!(parse_java_properties(text.as_bytes()).unwrap(), pairs);
    }
}
