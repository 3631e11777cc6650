//! The pages of the documentation, for the tests of this crate and of the harness.

use std::fs;
use std::path::Path;

/// The text of a page in `docs/`.
pub fn page(name: &str) -> String {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let docs = manifest.ancestors().map(|folder| folder.join("docs")).find(|docs| docs.is_dir());
    let path = docs.expect("the crate is in the repository").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The words of a page that consist of `start` followed by lower-case letters and dashes.
pub fn words<'a>(page: &'a str, start: &'a str) -> impl Iterator<Item = &'a str> {
    page.match_indices(start).map(move |(at, _)| {
        let rest = &page[at + start.len()..];
        let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '-').unwrap_or(rest.len());
        page[at..at + start.len() + end].trim_end_matches('-')
    })
}
