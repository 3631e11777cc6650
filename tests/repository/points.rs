//! Every named point of the allocators can be selected for delays.

use crate::files::tracked;
use std::collections::BTreeSet;
use warpheap_device::alloc::DeviceAlloc;
use warpheap_device::bump::{self, Bump};
use warpheap_device::freelist::{self, FreeList};
use warpheap_device::heap::{self, Heap, debug::DEBUG_ORDERINGS};
use warpheap_device::panic;

/// A site of no allocator and of no model.
const EXEMPT: [&str; 1] = ["check/swap"];

/// The names of the sites that a source text declares.
fn sites(text: &str) -> impl Iterator<Item = &str> {
    text.split("Site::new(\"").skip(1).filter_map(|rest| Some(rest.split_once('"')?.0))
}

#[test]
fn every_site_is_a_point_of_an_allocator() {
    let Some(files) = tracked() else { return };
    let sources = files.iter().filter(|(name, _)| name.starts_with("gpu/src/"));
    let declared: Vec<_> = sources.flat_map(|(_, text)| sites(text)).collect();
    let lists =
        [Bump::POINTS, FreeList::POINTS, Heap::POINTS, &[&DEBUG_ORDERINGS, &panic::ORDERINGS, &EXEMPT]];
    let listed = BTreeSet::from_iter(lists.into_iter().flatten().copied().flatten().copied());
    assert_eq!(BTreeSet::from_iter(declared.iter().copied()), listed);
    assert_eq!(declared.len(), listed.len(), "a name is declared twice: {declared:?}");
}

/// The number of operations that carry the site `constant` in a source text.
fn uses(text: &str, constant: &str) -> usize {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let forms = [("at(", ")"), (": ", ","), (": ", " }"), (" ", ".")];
    let forms = forms.map(|(before, after)| format!("{before}{constant}{after}"));
    code.map(|line| forms.iter().map(|form| line.matches(form.as_str()).count()).sum::<usize>()).sum()
}

/// Each ordering can be weakened by itself.
#[test]
fn every_site_is_that_of_one_operation() {
    let Some(files) = tracked() else { return };
    for (folder, names) in [
        ("gpu/src/bump/", &bump::ORDERINGS[..]),
        ("gpu/src/freelist/", &freelist::ORDERINGS),
        ("gpu/src/heap/checks/debug/", &DEBUG_ORDERINGS),
        ("gpu/src/heap/", &heap::ORDERINGS),
        ("gpu/src/panic/", &panic::ORDERINGS),
    ] {
        let sources = || files.iter().filter(|(name, _)| name.starts_with(folder)).map(|(_, text)| text);
        for name in names {
            let declaration = format!(": Site = Site::new(\"{name}\")");
            let constant = sources().find_map(|text| text.split_once(&declaration)?.0.rsplit(' ').next());
            let constant = constant.unwrap_or_else(|| panic!("{folder} declares no {name}"));
            let count: usize = sources().map(|text| uses(text, constant)).sum();
            assert_eq!(count, 1, "operations called {name}");
        }
    }
}

#[test]
fn a_second_operation_of_a_site_is_found() {
    let text = "// A.b()\nword.at(A).b();\n A.fence();\n BA.c();\nat(AB);\nB { a: A, b: B }\nuse A; B::A.0";
    assert_eq!(uses(text, "A"), 3);
}

#[test]
fn a_planted_site_is_reported() {
    assert!(sites("const A: Site = Site::new(\"a/b\");\nSite::new(name)").eq(["a/b"]));
}
