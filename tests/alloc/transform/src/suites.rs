//! The suites, and their division into modules for a GPU: each takes a driver a bearable time.

use crate::source::Suite;

/// All suites.
pub const SUITES: [&Suite; 2] = [&PUBLIC, &INTERNAL];

/// The tests of alloc's public interface.
pub const PUBLIC: Suite = Suite {
    kernels: "kernels",
    root: "alloctests/tests/lib.rs",
    sources: &["alloctests/tests", "alloctests/testing"],
    groups: &[
        ("counted", &["rc", "arc", "sync"]),
        ("slice", &["slice"]),
        ("sort_stable", &["sort::tests::stable", "sort::partial"]),
        ("sort_unstable", &["sort::tests::unstable"]),
        ("str", &["str"]),
        ("string", &["string"]),
        ("vec", &["vec"]),
        ("vec_deque", &["vec_deque"]),
        ("others", &[""]),
    ],
    is_split: true,
    // Up to 300 elements instead of a million.
    as_miri: &["alloctests/tests/sort"],
};

/// The tests in the sources of alloc itself: they use what is private there, so that their crate
/// has a copy of the modules under test.
pub const INTERNAL: Suite = Suite {
    kernels: "internal",
    root: "alloctests/lib.rs",
    sources: &[
        "alloctests/lib.rs",
        "alloctests/testing",
        "alloc/src/collections",
        "alloc/src/raw_vec",
        "alloc/src/wtf8",
    ],
    groups: &[
        ("btree_map", &["collections::btree::map"]),
        ("btree_set", &["collections::btree"]),
        ("lists", &["collections::linked_list", "collections::vec_deque"]),
        ("bytes", &[""]),
    ],
    is_split: false,
    as_miri: &[],
};
