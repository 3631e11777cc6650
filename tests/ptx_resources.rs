//! Assembles the kernels for real architectures with NVIDIA's ptxas: without a limit no kernel but
//! two that check spills registers, and under the program's limit each leaves them for every warp.
//!
//! ptxas is looked for in `WARPHEAP_PTXAS` and on the PATH. Without it the test passes, unless
//! `WARPHEAP_REQUIRE_PTXAS=1`. `--nocapture` shows the registers of each kernel.

mod ptx;

use ptx::assembler::{Usage, assemble, ptxas, usages};
use ptx::{built, required};

const ARCHS: [&str; 5] = ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120"];

/// Where the program's kernels are assembled: the image, and a GPU that is given it.
const SHIPPED: [(&str, &str); 3] = [("sm_70", "sm_75"), ("sm_80", "sm_80"), ("sm_80", "sm_90")];

/// What the slow paths of a kernel spill under the program's limit of registers, in bytes, in the order of
/// [`SHIPPED`], by ptxas 13.0; a kernel that is not listed spills nothing.
type Spills = (&'static str, [u32; SHIPPED.len()]);

/// What is measured: a growth here costs time.
const BENCH_SPILLS: [Spills; 9] = [
    ("bench_bump_alloc", [296, 296, 260]),
    ("bench_freelist_alloc", [32, 0, 0]),
    ("bench_freelist_churn", [204, 156, 108]),
    ("bench_heap_alloc", [10204, 10392, 9452]),
    ("bench_heap_alloc_each", [10404, 10632, 9616]),
    ("bench_heap_alloc_sparse", [10204, 10392, 9452]),
    ("bench_heap_churn", [10824, 10832, 9604]),
    ("bench_heap_churn_cached", [10980, 10816, 9664]),
    ("bench_heap_churn_mixed", [10552, 10728, 9548]),
];

/// What checks: it does far more than allocate.
const STRESS_SPILLS: [Spills; 12] = [
    ("exchange_freelist", [1724, 1700, 1604]),
    ("exchange_heap", [12404, 12412, 11412]),
    ("give_back_heap", [0, 0, 16]),
    ("grab_bump", [476, 372, 300]),
    ("grab_freelist", [184, 120, 88]),
    ("grab_heap", [10276, 10324, 9388]),
    ("overlap_claim", [56, 80, 80]),
    ("plant_double_free_heap", [112, 112, 208]),
    ("stress_bump", [1608, 1600, 1568]),
    ("stress_freelist", [1404, 1388, 1248]),
    ("stress_heap", [12448, 12360, 11180]),
    ("take_whole_heap", [10240, 10344, 9404]),
];

/// What the host launches to allocate for itself.
const HOST_SPILLS: [Spills; 1] = [("heap_alloc_many", [10208, 10396, 9456])];

/// The kernels of `tests/heap_groups.rs`: they are held to the heap's own spills, which they can reach.
const GROUP_SPILLS: [Spills; 7] = [
    ("groups_block", [10660, 10596, 9636]),
    ("groups_cache", [11424, 11044, 10144]),
    ("groups_exhaust", [11144, 11044, 10256]),
    ("groups_misuse", [11664, 11696, 10580]),
    ("groups_vanish", [11040, 11212, 10148]),
    ("groups_warp", [10708, 10752, 9512]),
    ("groups_whole", [10252, 10380, 9408]),
];

/// What kernels that allocate at many places spill without a limit, on any architecture, in bytes: most check a heap,
/// and the program carries none of them without the limit.
const UNLIMITED_SPILLS: [(&str, u32); 4] =
    [("bench_heap_churn", 8), ("exchange_heap", 992), ("groups_cache", 24), ("stress_heap", 1272)];

/// Whether it is a kernel of `warpheap examples`: they are there to be read and checked, not measured, and may
/// spill.
fn is_shown(usage: &Usage) -> bool {
    usage.kernel.starts_with("example_")
}

/// The most bytes that a kernel may spill at a place of [`SHIPPED`]: a tenth more than listed.
fn most_spills(kernel: &str, place: usize) -> u32 {
    let listed = BENCH_SPILLS
        .iter()
        .chain(&STRESS_SPILLS)
        .chain(&HOST_SPILLS)
        .chain(&GROUP_SPILLS)
        .find(|(name, _)| *name == kernel);
    listed.map_or(0, |(_, spills)| spills[place] + spills[place] / 10)
}

#[test]
fn no_kernel_spills_on_any_architecture() {
    let Some(ptxas) = ptxas() else { return };
    let Some(ptx) = built("gpu/kernels", "sm_70") else { return };
    let kernels = warpheap_build::entries(&ptx).count();
    for arch in ARCHS {
        let usages = assemble(&ptxas, &ptx, arch);
        assert_eq!(usages.len(), kernels, "ptxas reports every kernel on {arch}");
        for usage in &usages {
            println!(
                "{arch} {}: {} registers, {} bytes of stack",
                usage.kernel, usage.registers, usage.stack_bytes
            );
        }
        let allowed = |kernel: &str| {
            let listed = UNLIMITED_SPILLS.iter().find(|(name, _)| *name == kernel);
            listed.map_or(0, |(_, bytes)| bytes + bytes / 10)
        };
        let spilling: Vec<_> = usages
            .iter()
            .filter(|usage| usage.spill_bytes > allowed(&usage.kernel) && !is_shown(usage))
            .collect();
        assert!(spilling.is_empty(), "these kernels spill registers on {arch}: {spilling:#?}");
    }
}

/// What the program carries is built with a limit, under which slow paths may spill.
#[test]
fn the_kernels_of_the_program_leave_registers_for_every_warp() {
    let Some(ptxas) = ptxas() else { return };
    let images = match warpheap::build_info::images() {
        Ok(images) => images,
        Err(why) => return assert!(!required("WARPHEAP_REQUIRE_COMPILER"), "{why}"),
    };
    let mut over = Vec::new();
    for (place, (image, arch)) in SHIPPED.into_iter().enumerate() {
        let image = images.iter().find(|one| one.arch == image).expect("the program has this image");
        for usage in assemble(&ptxas, image.ptx, arch) {
            println!("{} on {arch}: {usage:?}", image.arch);
            assert!(usage.registers <= 32, "{arch}: {usage:?}");
            if !is_shown(&usage) && usage.spill_bytes > most_spills(&usage.kernel, place) {
                over.push((arch, usage));
            }
        }
    }
    assert!(over.is_empty(), "more spills than listed: {over:#?}");
}

#[test]
fn a_spill_is_read_off_the_report() {
    let report = "ptxas info    : 0 bytes gmem\n\
        ptxas info    : Compiling entry function 'lean' for 'sm_80'\n\
        ptxas info    : Function properties for lean\n    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
        ptxas info    : Used 12 registers, used 0 barriers, 376 bytes cmem[0]\n\
        ptxas info    : Compiling entry function 'fat' for 'sm_80'\n\
        ptxas info    : Function properties for fat\n    64 bytes stack frame, 48 bytes spill stores, 52 bytes spill loads\n\
        ptxas info    : Used 255 registers, used 1 barriers\n\
        ptxas info    : Function properties for fatter\n    8 bytes stack frame, 4 bytes spill stores, 2 bytes spill loads\n";
    let lean = Usage { kernel: "lean".into(), registers: 12, ..Usage::default() };
    let fat = Usage {
        kernel: "fat".into(),
        registers: 255,
        stack_bytes: 72,
        spill_bytes: 106,
        own_stack_bytes: 64,
        own_spill_bytes: 100,
    };
    assert_eq!(usages(report), [lean, fat]);
}

#[test]
fn a_growth_of_more_than_a_tenth_is_too_much() {
    assert_eq!(most_spills("bench_bump_alloc", 1), 325);
    assert_eq!(most_spills("bench_freelist_alloc", 2), 0);
    assert_eq!(most_spills("bench_freelist_free", 0), 0);
}
