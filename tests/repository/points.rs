//! Every named point of the allocators can be selected for delays.

use crate::files::tracked;
use std::collections::BTreeSet;
use warpheap_device::alloc::DeviceAlloc;
use warpheap_device::bump::Bump;
use warpheap_device::freelist::FreeList;
use warpheap_device::heap::{Heap, debug::DEBUG_SITES};

/// Sites of no allocator.
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
    let lists = [Bump::POINTS, FreeList::POINTS, Heap::POINTS, &[&DEBUG_SITES, &EXEMPT]];
    let listed = BTreeSet::from_iter(lists.into_iter().flatten().copied().flatten().copied());
    assert_eq!(BTreeSet::from_iter(declared.iter().copied()), listed);
    assert_eq!(declared.len(), listed.len(), "a name is declared twice: {declared:?}");
}

#[test]
fn a_planted_site_is_reported() {
    assert!(sites("const A: Site = Site::new(\"a/b\");\nSite::new(name)").eq(["a/b"]));
}
