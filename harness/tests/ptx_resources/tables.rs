//! The listed spills of kernels and functions, and their comparison with new ones.

use std::fmt::Write;

pub const ARCHS: [&str; 5] = ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120"];

/// The shipped images: the PTX, and a GPU that runs it.
pub const SHIPPED: [(&str, &str); 3] = [("sm_70", "sm_75"), ("sm_80", "sm_80"), ("sm_80", "sm_90")];

/// Bytes that the functions of one module, identified by the mangled name, save and spill without a
/// register limit, in the order of [`ARCHS`], by ptxas 13.0.
pub type FunctionSpills = (&'static str, [u32; ARCHS.len()]);

pub const FUNCTION_SPILLS: &[FunctionSpills] = &[
    ("alloc::raw_vec", [88, 88, 104, 104, 104]),
    ("alloc::raw_vec::capacity_overflow", [16, 16, 16, 16, 16]),
    ("alloc::raw_vec::handle_error", [16, 16, 16, 16, 16]),
    ("core::option::unwrap_failed", [16, 16, 16, 16, 16]),
    ("core::panicking::panic", [16, 16, 16, 16, 16]),
    ("core::panicking::panic_bounds_check", [16, 16, 16, 16, 16]),
    ("core::panicking::panic_const", [32, 32, 32, 32, 32]),
    ("core::slice::index", [16, 16, 16, 16, 16]),
    ("warpheap_device::bump::alloc", [784, 776, 88, 88, 72]),
    ("warpheap_device::check::worker", [48, 48, 48, 48, 48]),
    ("warpheap_device::freelist::alloc", [976, 984, 80, 80, 80]),
    ("warpheap_device::freelist::free", [256, 256, 48, 48, 48]),
    ("warpheap_device::global", [424, 424, 168, 168, 168]),
    ("warpheap_device::global::stop_out_of_memory", [16, 16, 16, 16, 16]),
    ("warpheap_device::heap::paths::alloc", [528, 512, 288, 288, 288]),
    ("warpheap_device::heap", [456, 456, 96, 96, 96]),
    ("warpheap_device::heap::block_cache::slots", [928, 928, 176, 176, 208]),
    ("warpheap_device::heap::paths::large", [16, 16, 16, 16, 16]),
    ("warpheap_device::heap::paths::probe", [648, 648, 96, 96, 96]),
    ("warpheap_device::heap::paths::slow", [616, 616, 488, 488, 488]),
    ("warpheap_device::heap::paths::realloc", [312, 312, 144, 144, 136]),
    ("warpheap_device::heap::paths::refill", [936, 984, 512, 512, 648]),
    ("warpheap_device::heap::paths::free", [32, 32, 32, 32, 32]),
    ("warpheap_device::heap::structures::index_set", [168, 168, 64, 64, 64]),
    ("warpheap_device::heap::structures::runs", [32, 32, 32, 32, 32]),
    ("warpheap_device::heap::paths::search", [1392, 1400, 200, 200, 216]),
    ("warpheap_device::heap::structures::slabs", [552, 552, 48, 48, 48]),
    ("warpheap_device::lanes::sums", [312, 312, 16, 16, 16]),
    ("warpheap_harness_suite_kernels::suite_kernels::malloc", [48, 0, 0, 0, 0]),
];

/// Bytes that a kernel and the functions it can reach spill under the program's register limit, in
/// the order of [`SHIPPED`], by ptxas 13.0. A kernel that is not listed spills nothing.
pub type Spills = (&'static str, [u32; SHIPPED.len()]);

/// Benchmarked kernels: an increase here costs time.
pub const BENCH_SPILLS: &[Spills] = &[
    ("bench_bump_alloc", [296, 296, 260]),
    ("bench_freelist_alloc", [76, 0, 0]),
    ("bench_freelist_churn", [232, 156, 108]),
    ("bench_heap_alloc", [11312, 10892, 10384]),
    ("bench_heap_alloc_each", [11428, 10992, 10524]),
    ("bench_heap_alloc_sparse", [11312, 10892, 10384]),
    ("bench_heap_churn", [11524, 11184, 10668]),
    ("bench_heap_churn_cached", [11780, 11476, 10956]),
    ("bench_heap_churn_mixed", [11392, 11068, 10572]),
    ("bench_heap_free", [0, 0, 24]),
    ("bench_heap_free_each", [24, 24, 56]),
    ("bench_heap_free_half", [16, 16, 48]),
    ("bench_heap_free_sparse", [0, 0, 24]),
    ("bench_load_fill", [11340, 10908, 10412]),
    ("bench_load_turn", [11344, 10880, 10392]),
];

/// Kernels that check: they do far more than allocate.
pub const STRESS_SPILLS: &[Spills] = &[
    ("exchange_freelist", [1804, 1808, 1732]),
    ("exchange_heap", [13208, 12884, 12040]),
    ("free_all_heap", [24, 24, 48]),
    ("exhaust_bump", [476, 372, 300]),
    ("exhaust_freelist", [240, 120, 76]),
    ("exhaust_heap", [11224, 10884, 10336]),
    ("overlap_claim", [56, 80, 80]),
    ("plant_double_free_heap", [156, 156, 236]),
    ("plant_overlap_heap", [0, 0, 24]),
    ("stress_bump", [1620, 1612, 1580]),
    ("stress_freelist", [1488, 1420, 1356]),
    ("stress_heap", [13448, 13268, 11972]),
    ("take_whole_heap", [11216, 10804, 10236]),
];

/// Kernels of allocations by the host.
pub const HOST_SPILLS: &[Spills] =
    &[("heap_alloc_many", [11316, 10888, 10380]), ("heap_free_many", [0, 0, 24])];

/// The kernels of `harness/tests/heap_groups/`, which are assembled for sm_90 only. They call the
/// heap's slow paths, so their bound is the heap's spills.
pub const GROUP_SPILLS: &[Spills] = &[
    ("groups_block", [0, 0, 10616]),
    ("groups_cache", [0, 0, 11024]),
    ("groups_exhaust", [0, 0, 11100]),
    ("groups_misuse", [0, 0, 11680]),
    ("groups_vanish", [0, 0, 10908]),
    ("groups_warp", [0, 0, 10576]),
];

/// Kernels of the suites. Those that time calls of the heap have its spills.
pub const SUITE_SPILLS: &[Spills] = &[
    ("suite_heap_alloc_latency", [11312, 10892, 10400]),
    ("suite_heap_churn_latency", [11604, 11252, 10756]),
    ("suite_heap_free_latency", [16, 16, 52]),
];

/// The tables of [`Spills`], each with the prefix of its kernels' names. The first matching prefix
/// applies.
pub const TABLES: [(&str, &str, &[Spills]); 5] = [
    ("BENCH_SPILLS", "bench_", BENCH_SPILLS),
    ("SUITE_SPILLS", "suite_", SUITE_SPILLS),
    ("HOST_SPILLS", "heap_", HOST_SPILLS),
    ("GROUP_SPILLS", "groups_", GROUP_SPILLS),
    ("STRESS_SPILLS", "", STRESS_SPILLS),
];

/// Whether `kernel` fills a collection of Rust's, or shows a panic. These may spill.
pub fn may_spill(kernel: &str) -> bool {
    kernel.starts_with("collect_") || kernel.starts_with("demo_")
}

pub fn table_of(kernel: &str) -> &'static (&'static str, &'static str, &'static [Spills]) {
    TABLES.iter().find(|(_, begins, _)| kernel.starts_with(begins)).expect("the last prefix is empty")
}

/// The bound for a listed figure: a tenth more.
pub fn bound(listed: u32) -> u32 {
    listed + listed / 10
}

/// Whether any figure of `name` exceeds its bound.
pub fn is_over<const N: usize>(listed: &[(&str, [u32; N])], name: &str, found: &[u32; N]) -> bool {
    let listed_bytes = listed.iter().find(|(one, _)| *one == name).map_or([0; N], |(_, bytes)| *bytes);
    found.iter().zip(listed_bytes).any(|(found, listed)| *found > bound(listed))
}

/// Rows of a table.
pub fn lines<'a, const N: usize>(found: impl IntoIterator<Item = (&'a String, &'a [u32; N])>) -> String {
    let spilling = found.into_iter().filter(|(_, bytes)| **bytes != [0; N]);
    spilling.fold(String::new(), |mut all, (name, bytes)| {
        writeln!(all, "    ({name:?}, {bytes:?}),").expect("a string takes everything");
        all
    })
}

/// The module of a mangled name: its crate, and up to two further path segments.
pub fn module_of(mangled: &str) -> String {
    let root = mangled.find("Cs").map_or("", |at| &mangled[at + 2..]);
    let mut rest = root.split_once('_').map_or("", |(_, rest)| rest);
    let mut names = Vec::new();
    // The modules of the heap are in folders.
    while names.len() < if names.get(1) == Some(&"heap") { 4 } else { 3 } {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let Some((name, after)) =
            rest[..digits].parse().ok().and_then(|len: usize| rest[digits..].split_at_checked(len))
        else {
            break;
        };
        names.push(name);
        rest = after;
    }
    names.join("::")
}

#[test]
fn a_function_is_listed_by_its_module() {
    for (mangled, module) in [
        (
            "_RNvMNtNtNtCsloMFrLJa7Hw_15warpheap_device4heap5paths4slowNtNtB6_10structures8HeapCore10alloc_slow",
            "warpheap_device::heap::paths::slow",
        ),
        (
            "_RNvMs3_NtCs4nJOaEJCGUY_5alloc7raw_vecINtB5_6RawVecyE8grow_oneCseJTxHKcbQFl_16warpheap_kernels",
            "alloc::raw_vec",
        ),
        ("_RNvNtNtCs5BSODPsnYV7_4core5slice5index16slice_index_fail", "core::slice::index"),
        ("vprintf", ""),
    ] {
        assert_eq!(module_of(mangled), module);
    }
}

#[test]
fn more_than_ten_percent_above_the_listed_value_fails() {
    let listed = [("slow", [100, 0, 9])];
    for (found, over) in [([110, 0, 9], false), ([111, 0, 0], true), ([0, 1, 0], true), ([0, 0, 10], true)] {
        assert_eq!(is_over(&listed, "slow", &found), over, "{found:?}");
    }
    assert!(is_over(&listed, "other", &[1, 0, 0]) && !is_over(&listed, "other", &[0; 3]));
    let found = [("slow".to_owned(), [1, 2]), ("fast".to_owned(), [0, 0])];
    assert_eq!(lines(found.iter().map(|(name, bytes)| (name, bytes))), "    (\"slow\", [1, 2]),\n");
    assert_eq!(table_of("bench_spin").0, "BENCH_SPILLS");
    assert_eq!(table_of("heap_alloc_many").0, "HOST_SPILLS");
    assert_eq!(table_of("exhaust_heap").0, "STRESS_SPILLS");
}
