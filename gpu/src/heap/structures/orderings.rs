//! The named orderings of the heap, and the other points at which a stress test can delay a thread.

use crate::sync::Site;

/// The claim of bits of the bitmap.
pub(in crate::heap) const CLAIM: Site = Site::new("heap/claim");
/// The bits that a free sets.
pub(in crate::heap) const RELEASE: Site = Site::new("heap/release");
/// The fence before a sweep looks at the blocks of a run that it removed from the idle set.
pub(in crate::heap) const SWEEP: Site = Site::new("heap/sweep");
/// The fence before the blocks of a run that was removed from the idle set are taken.
pub(in crate::heap) const TAKE: Site = Site::new("heap/take");
/// The fence between the entries of a run and its bits.
pub(in crate::heap) const PUBLISH: Site = Site::new("heap/publish");
/// The fence between the bits of a run and its hints.
pub(in crate::heap) const LIST: Site = Site::new("heap/list");
/// The check of the bits of a run that was unlisted.
pub(in crate::heap) const UNLIST: Site = Site::new("heap/unlist");
/// The insertion into a word of a set.
pub(in crate::heap) const INSERT: Site = Site::new("heap/insert");
/// The removal from a set.
pub(in crate::heap) const REMOVE: Site = Site::new("heap/remove");
/// The bit in the level above of a word of a set.
pub(in crate::heap) const RAISE: Site = Site::new("heap/raise");
/// The removal of that bit.
pub(in crate::heap) const LOWER: Site = Site::new("heap/lower");
/// The claim of free slabs.
pub(in crate::heap) const CLAIM_SLABS: Site = Site::new("heap/claim-slabs");
/// The end of a move.
pub(in crate::heap) const MOVE: Site = Site::new("heap/move");
/// The load of the moves before a search.
pub(in crate::heap) const SEARCH: Site = Site::new("heap/search");
/// The fence after a search.
pub(in crate::heap) const SEARCH_END: Site = Site::new("heap/search-end");
/// The fence after a search for the slabs of a large allocation.
pub(in crate::heap) const LARGE_END: Site = Site::new("heap/large-end");
/// The store of a span in a cursor.
pub(in crate::heap) const STORE_SPAN: Site = Site::new("heap/store-span");
/// The store of the entry of a slab of a new run.
pub(in crate::heap) const STORE_ENTRY: Site = Site::new("heap/store-entry");
/// The first addition to the count of a new run.
pub(in crate::heap) const BEGIN_COUNT: Site = Site::new("heap/begin-count");
/// The claim of a word of a run that is retired.
pub(in crate::heap) const RETIRE: Site = Site::new("heap/retire");
/// The store of a free entry of a retired run.
pub(in crate::heap) const FREE_ENTRY: Site = Site::new("heap/free-entry");
/// The store of the entry of a large allocation.
pub(in crate::heap) const STORE_LARGE: Site = Site::new("heap/store-large");
/// The store of a free entry by the free of a large allocation.
pub(in crate::heap) const FREE_LARGE: Site = Site::new("heap/free-large");

/// Every named ordering of this structure, for checkers.
pub const ORDERINGS: [&str; 16] = [
    "heap/claim",
    "heap/release",
    "heap/sweep",
    "heap/take",
    "heap/publish",
    "heap/list",
    "heap/unlist",
    "heap/insert",
    "heap/remove",
    "heap/raise",
    "heap/lower",
    "heap/claim-slabs",
    "heap/move",
    "heap/search",
    "heap/search-end",
    "heap/large-end",
];

/// The other points at which a stress test can delay a thread.
pub const POINTS: [&str; 7] = [
    "heap/store-span",
    "heap/store-entry",
    "heap/begin-count",
    "heap/retire",
    "heap/free-entry",
    "heap/store-large",
    "heap/free-large",
];
