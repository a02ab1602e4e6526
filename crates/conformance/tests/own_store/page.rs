//! The guide page shows the files that are run, word for word.

use std::path::Path;

const LINES_MAX: usize = 100;

#[test]
fn page_about_an_own_store_shows_what_is_tested() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(package.join("../../docs/dev/own-store.md")).unwrap();
    for name in ["toy.rs", "suites.rs"] {
        let file = std::fs::read_to_string(package.join("tests/own_store").join(name)).unwrap();
        assert!(
            page.contains(&format!("```rust\n{file}```\n")),
            "docs/dev/own-store.md shows another {name}"
        );
        assert!(file.lines().count() < LINES_MAX, "{name} is no toy any more");
    }
}
