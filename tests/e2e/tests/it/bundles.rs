//! Bundles that are older or newer than the table.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tms_e2e::node::JOB_MAX;
use tms_e2e::tools::table_version;
use tms_e2e::world::{Base, Case, announce, compaction_writer};

use crate::{OLDEST, USUAL, on};

const OLDER_MAX: Duration = Duration::from_secs(180);

/// Version and layout lines of both properties files.
fn versions(case: &Case) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for file in [".hoodie/hoodie.properties", ".hoodie/metadata/.hoodie/hoodie.properties"] {
        let text =
            std::fs::read_to_string(case.table.join(file)).with_context(|| format!("cannot read {file}"))?;
        let wanted = |l: &&str| {
            ["hoodie.table.version", "hoodie.timeline.layout.version", "hoodie.table.metadata.partitions"]
                .iter()
                .any(|key| l.starts_with(&format!("{key}=")))
        };
        lines.extend(text.lines().filter(wanted).map(|l| format!("{file} {l}")));
    }
    lines.sort();
    Ok(lines)
}

#[test]
fn a_bundle_older_than_the_table_touches_nothing() {
    on(&USUAL, |world| {
        // The oldest release has no older bundle.
        if table_version(&world.release) == 6 {
            return Ok(());
        }
        let older = if table_version(&world.release) == 9 { "1.0.2" } else { "0.15.0" };
        let case = world.case(Base::Compaction)?;
        let before = world.lab.read_both(&case.table)?;
        let versions_before = versions(&case)?;
        let mut settings = world.settings();
        // Under its own name it is refused before anything runs; under this one its job has to find out.
        let nameless = case.folder.join("bundle.jar");
        std::os::unix::fs::symlink(world.tools.bundle(older), &nameless).context("cannot link the bundle")?;
        settings.bundles = vec![(table_version(&world.release), nameless)];
        let node = world.node(&case, &settings)?;
        announce(&node, &case)?;
        let stopped = node.until("compaction", "it is parked or failed", OLDER_MAX, |i| {
            i["state"] == "parked" || i["state"] == "failed"
        })?;
        // 0.15.0 says nothing but `IllegalArgumentException` of a table of 1.0.
        let is_told = older != "0.15.0";
        ensure!(stopped["reason"] == "bundle_too_old" || !is_told, "{stopped}");
        ensure!(versions(&case)? == versions_before, "the properties changed");
        world.expect_rows(&case, &before)?;
        world.writer_goes_on(&case, &compaction_writer(), (0, 199, 9, None))
    });
}

#[test]
fn a_bundle_newer_than_the_table_keeps_the_old_writer_in() {
    let newer_than = |release: &str| if release == "1.2.0" { None } else { Some("1.2.0") };
    on(&OLDEST, |world| {
        let Some(newer) = newer_than(&world.release) else { return Ok(()) };
        let case = world.case(Base::Compaction)?;
        let before = world.lab.read_both(&case.table)?;
        let versions_before = versions(&case)?;
        let mut settings = world.settings();
        settings.bundles = vec![(table_version(&world.release), world.tools.bundle(newer))];
        let node = world.node(&case, &settings)?;
        announce(&node, &case)?;
        node.until_state("compaction", "succeeded", JOB_MAX)?;
        ensure!(versions(&case)? == versions_before, "{versions_before:?} became {:?}", versions(&case)?);
        world.expect_rows(&case, &before)?;
        world.writer_goes_on(&case, &compaction_writer(), (0, 199, 9, None))
    });
}
