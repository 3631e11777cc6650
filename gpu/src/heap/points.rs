//! Points at which a stress test can delay a thread, besides the named orderings.

use crate::sync::Site;

/// The store of a span in a cursor, after the fence.
pub(super) const STORE_SPAN: Site = Site::new("heap/store-span");
/// The store of the number of runs of a span, after the span.
pub(super) const STORE_RUNS: Site = Site::new("heap/store-runs");
/// The store of an entry of a slab of a new span.
pub(super) const STORE_ENTRY: Site = Site::new("heap/store-entry");
/// The first addition to a run's count, after its entry.
pub(super) const BEGIN_COUNT: Site = Site::new("heap/begin-count");
/// The store of a free entry when a span is closed.
pub(super) const CLOSE_ENTRY: Site = Site::new("heap/close-entry");
/// The store of a free entry by a sweep.
pub(super) const SWEEP_ENTRY: Site = Site::new("heap/sweep-entry");
/// The store of the entry of a large allocation.
pub(super) const STORE_LARGE: Site = Site::new("heap/store-large");
/// The store of a free entry by the free of a large allocation.
pub(super) const FREE_LARGE: Site = Site::new("heap/free-large");
/// The claim of fresh slabs.
pub(super) const TAKE_FRESH: Site = Site::new("heap/take-fresh");
/// The claim of all fresh slabs of a shard, after the look at them.
pub(super) const TAKE_ALL_FRESH: Site = Site::new("heap/take-all-fresh");
/// The bits of freed blocks, after the fence.
pub(super) const SET_BITS: Site = Site::new("heap/set-bits");
/// The addition to a run's count, after the bits.
pub(super) const ADD_COUNT: Site = Site::new("heap/add-count");
/// The mark of a run of which a word became free by several frees, after the bits.
pub(super) const MARK_JOINED: Site = Site::new("heap/mark-joined");
/// The return of a run that was taken, to its count.
pub(super) const RETURN_RUN: Site = Site::new("heap/return-run");
/// The clearing of all bits of a run.
pub(super) const CLEAR_BITS: Site = Site::new("heap/clear-bits");
/// The insertion of a run into a set, after its count.
pub(super) const NOTE_RUN: Site = Site::new("heap/note-run");
/// The removal of runs from a set, after the look at it.
pub(super) const TAKE_RUN: Site = Site::new("heap/take-run");
/// The result of a scan, class by class.
pub(super) const STORE_RESULT: Site = Site::new("heap/store-result");
/// The other points at which a stress test can delay a thread.
pub const POINTS: [&str; 18] = [
    "heap/store-span",
    "heap/store-runs",
    "heap/store-entry",
    "heap/begin-count",
    "heap/close-entry",
    "heap/sweep-entry",
    "heap/store-large",
    "heap/free-large",
    "heap/take-fresh",
    "heap/take-all-fresh",
    "heap/set-bits",
    "heap/add-count",
    "heap/mark-joined",
    "heap/return-run",
    "heap/clear-bits",
    "heap/note-run",
    "heap/take-run",
    "heap/store-result",
];
