//! Assembles the kernels for real architectures with NVIDIA's ptxas. Without a register limit, no
//! kernel's own code may spill registers. With the program's limit, each kernel must leave
//! registers for every warp.
//!
//! ptxas has two modes. In *whole* mode, which drivers use, a kernel is compiled with a copy of
//! every function it can reach. The kernels that ship are checked in this mode, which takes a
//! minute and more per architecture. In *relocatable* mode (`--compile-only`), each kernel and each
//! function is compiled once, to be linked later. This takes seconds, so all architectures are
//! checked in this mode. There, registers that a function saves for its callers count as spills; in
//! whole mode it has registers of its own instead, up to a kernel's 255. How close a kernel comes
//! to that limit is in `tests/ptx/call_sites.rs`.
//!
//! ptxas is looked up in `WARPHEAP_PTXAS` and on the PATH. Without it the test passes, unless
//! `WARPHEAP_REQUIRE_PTXAS=1`. With `--nocapture` it prints the registers of each kernel. A failing
//! test prints the corrected rows of its tables.

#[path = "../../tests/ptx/support/mod.rs"]
mod ptx;

use ptx::assembler::{Part, Usage, assemble, assemble_apart, parts, ptxas, usages};
use ptx::{SHIPPED_KERNELS, built, required};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::time::Instant;
use warpheap::KernelImage;
use warpheap_harness::bench::{self, BenchConfig};
use warpheap_harness::stress::{AllocatorKind, StressConfig};

const ARCHS: [&str; 5] = ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120"];

/// The shipped images: the PTX, and a GPU that runs it.
const SHIPPED: [(&str, &str); 3] = [("sm_70", "sm_75"), ("sm_80", "sm_80"), ("sm_80", "sm_90")];

/// The register limit of the program's kernels.
const LIMIT: &str = ".maxnreg 32";

/// Bytes that the functions of one module, identified by the mangled name, save and spill without a
/// limit, in the order of [`ARCHS`], by ptxas 13.0.
type Saves = (&'static str, [u32; ARCHS.len()]);

const FUNCTION_SAVES: &[Saves] = &[
    ("alloc::raw_vec", [328, 328, 392, 392, 392]),
    ("alloc::raw_vec::capacity_overflow", [16, 16, 16, 16, 16]),
    ("alloc::raw_vec::handle_error", [16, 16, 16, 16, 16]),
    ("alloc::rc", [48, 48, 48, 48, 16]),
    ("core::option::unwrap_failed", [16, 16, 16, 16, 16]),
    ("core::panicking::panic", [16, 16, 16, 16, 16]),
    ("core::panicking::panic_const", [32, 32, 32, 32, 32]),
    ("core::slice::index", [16, 16, 16, 16, 16]),
    ("warpheap_device::bump::alloc", [480, 480, 72, 72, 56]),
    ("warpheap_device::bump::find", [304, 296, 16, 16, 16]),
    ("warpheap_device::check::workload", [48, 48, 48, 48, 48]),
    ("warpheap_device::freelist::alloc", [808, 824, 64, 64, 64]),
    ("warpheap_device::freelist::empty", [168, 160, 16, 16, 16]),
    ("warpheap_device::freelist::free", [256, 256, 48, 48, 48]),
    ("warpheap_device::global", [384, 384, 168, 168, 168]),
    ("warpheap_device::global::stop_refused", [16, 16, 16, 16, 16]),
    ("warpheap_device::heap::alloc", [336, 328, 120, 120, 104]),
    ("warpheap_device::heap::block_cache", [1144, 1144, 224, 224, 224]),
    ("warpheap_device::heap::close", [696, 712, 152, 152, 128]),
    ("warpheap_device::heap::fresh", [32, 32, 32, 32, 32]),
    ("warpheap_device::heap::full", [416, 400, 344, 344, 312]),
    ("warpheap_device::heap::group", [368, 368, 88, 88, 88]),
    ("warpheap_device::heap::holes", [32, 32, 32, 32, 32]),
    ("warpheap_device::heap::large", [72, 72, 16, 16, 16]),
    ("warpheap_device::heap::proof", [688, 688, 144, 144, 160]),
    ("warpheap_device::heap::refill", [1064, 1064, 688, 688, 736]),
    ("warpheap_device::heap::resize", [232, 232, 120, 120, 144]),
    ("warpheap_device::heap::reuse", [2144, 2144, 48, 48, 48]),
    ("warpheap_device::heap::sets", [464, 456, 96, 96, 96]),
    ("warpheap_device::heap::short", [2136, 2120, 752, 752, 688]),
    ("warpheap_device::heap::sweep", [496, 496, 464, 464, 448]),
    ("warpheap_device::lanes::sums", [312, 312, 16, 16, 16]),
];

/// Bytes that a kernel and the functions it can reach spill under the program's register limit, in
/// the order of [`SHIPPED`], by ptxas 13.0. A kernel that is not listed spills nothing.
type Spills = (&'static str, [u32; SHIPPED.len()]);

/// Benchmarked kernels: an increase here costs time.
const BENCH_SPILLS: &[Spills] = &[
    ("bench_bump_alloc", [296, 296, 260]),
    ("bench_freelist_alloc", [76, 0, 0]),
    ("bench_freelist_churn", [232, 156, 108]),
    ("bench_heap_alloc", [12434, 12466, 11130]),
    ("bench_heap_alloc_each", [12554, 12602, 11222]),
    ("bench_heap_alloc_sparse", [12434, 12466, 11130]),
    ("bench_heap_churn", [12998, 12946, 11234]),
    ("bench_heap_churn_cached", [13038, 13130, 11338]),
    ("bench_heap_churn_mixed", [12914, 12862, 11134]),
    ("bench_heap_free_each", [0, 0, 12]),
    ("bench_heap_free_half", [16, 16, 16]),
];

/// Kernels that check: they do far more than allocate.
const STRESS_SPILLS: &[Spills] = &[
    ("exchange_freelist", [1704, 1708, 1604]),
    ("exchange_heap", [14514, 14554, 12798]),
    ("give_back_heap", [20, 20, 8]),
    ("grab_bump", [476, 372, 300]),
    ("grab_freelist", [240, 120, 76]),
    ("grab_heap", [12750, 12694, 11014]),
    ("overlap_claim", [56, 80, 80]),
    ("plant_double_free_heap", [36, 36, 116]),
    ("stress_bump", [1608, 1600, 1568]),
    ("stress_freelist", [1424, 1392, 1292]),
    ("stress_heap", [14522, 14402, 12534]),
    ("take_whole_heap", [12194, 12230, 10926]),
];

/// Kernels of allocations by the host.
const HOST_SPILLS: &[Spills] = &[("heap_alloc_many", [12438, 12470, 11134])];

/// The kernels of `harness/tests/heap_groups.rs`, which are assembled for sm_90 only. Their bound
/// is the heap's own spills, which they can reach.
const GROUP_SPILLS: &[Spills] = &[
    ("groups_block", [0, 0, 11146]),
    ("groups_cache", [0, 0, 11750]),
    ("groups_exhaust", [0, 0, 11502]),
    ("groups_misuse", [0, 0, 11866]),
    ("groups_vanish", [0, 0, 11690]),
    ("groups_warp", [0, 0, 11298]),
    ("groups_whole", [0, 0, 10526]),
];

/// The tables of [`Spills`], each with the prefix of its kernels' names. The first matching prefix
/// applies.
const TABLES: [(&str, &str, &[Spills]); 4] = [
    ("BENCH_SPILLS", "bench_", BENCH_SPILLS),
    ("HOST_SPILLS", "heap_", HOST_SPILLS),
    ("GROUP_SPILLS", "groups_", GROUP_SPILLS),
    ("STRESS_SPILLS", "", STRESS_SPILLS),
];

/// Whether it is a kernel of `warpheap examples` or `warpheap pool demo`. These are for
/// demonstration, are not measured, and may spill.
fn is_shown(kernel: &str) -> bool {
    kernel.starts_with("example_") || kernel.starts_with("demo_")
}

fn table_of(kernel: &str) -> &'static (&'static str, &'static str, &'static [Spills]) {
    TABLES.iter().find(|(_, begins, _)| kernel.starts_with(begins)).expect("one fits every name")
}

/// The bound for a listed figure: a tenth more.
fn most(listed: u32) -> u32 {
    listed + listed / 10
}

/// Whether any figure of `name` exceeds its bound.
fn is_over<const N: usize>(listed: &[(&str, [u32; N])], name: &str, found: &[u32; N]) -> bool {
    let of_name = listed.iter().find(|(one, _)| *one == name).map_or([0; N], |(_, bytes)| *bytes);
    found.iter().zip(of_name).any(|(found, listed)| *found > most(listed))
}

/// Rows of a table.
fn lines<'a, const N: usize>(found: impl IntoIterator<Item = (&'a String, &'a [u32; N])>) -> String {
    let spilling = found.into_iter().filter(|(_, bytes)| **bytes != [0; N]);
    spilling.fold(String::new(), |mut all, (name, bytes)| {
        writeln!(all, "    ({name:?}, {bytes:?}),").expect("a string takes everything");
        all
    })
}

/// The module of a mangled name: its crate, and up to two further path segments.
fn module_of(mangled: &str) -> String {
    let root = mangled.find("Cs").map_or("", |at| &mangled[at + 2..]);
    let mut rest = root.split_once('_').map_or("", |(_, rest)| rest);
    let mut names = Vec::new();
    while names.len() < 3 {
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
fn no_kernel_spills_on_any_architecture() {
    let Some(ptxas) = ptxas() else { return };
    for folder in SHIPPED_KERNELS {
        let Some(ptx) = built(folder, "sm_70") else { return };
        check_own_spills(&ptxas, &ptx);
    }
}

/// Checks kernels without a register limit.
fn check_own_spills(ptxas: &Path, ptx: &str) {
    let kernels = warpheap_build::entries(ptx).count();
    let mut saves = BTreeMap::<String, [u32; ARCHS.len()]>::new();
    for (place, arch) in ARCHS.into_iter().enumerate() {
        let (of_kernels, of_functions): (Vec<Part>, Vec<Part>) =
            assemble_apart(ptxas, ptx, arch).into_iter().partition(|part| part.registers.is_some());
        assert_eq!(of_kernels.len(), kernels, "ptxas reports every kernel on {arch}");
        of_kernels.iter().for_each(|kernel| println!("{arch} {kernel:?}"));
        let spilling: Vec<_> = of_kernels.iter().filter(|kernel| kernel.spill_bytes > 0).collect();
        assert!(spilling.is_empty(), "these kernels spill registers on {arch}: {spilling:#?}");
        for function in of_functions {
            saves.entry(module_of(&function.name)).or_default()[place] += function.spill_bytes;
        }
    }
    let over: Vec<_> = saves.iter().filter(|(name, found)| is_over(FUNCTION_SAVES, name, found)).collect();
    assert!(over.is_empty(), "{over:?}: functions save more than listed; all:\n{}", lines(&saves));
}

/// The shipped kernels have a limit, under which slow paths may spill. For the kernels of the
/// examples only the limit is checked.
#[test]
fn the_kernels_of_the_program_leave_registers_for_every_warp() {
    let Some(ptxas) = ptxas() else { return };
    let mut spills = BTreeMap::<String, [u32; SHIPPED.len()]>::new();
    for images in [warpheap::build_info::images(), warpheap_harness::build_info::images()] {
        match images {
            Ok(images) => check_shipped(&ptxas, images, &mut spills),
            Err(why) => return assert!(!required("WARPHEAP_REQUIRE_COMPILER"), "{why}"),
        }
    }
    let is_over = |(kernel, found): &(&String, &[u32; 3])| is_over(table_of(kernel).2, kernel, found);
    let over: Vec<_> = spills.iter().filter(is_over).collect();
    let tables = TABLES.iter().map(|table| {
        let its_own = spills.iter().filter(|(kernel, _)| table_of(kernel).0 == table.0);
        format!("{}:\n{}", table.0, lines(its_own))
    });
    assert!(over.is_empty(), "more spills than listed: {over:?}; all:\n{}", tables.collect::<String>());
}

/// Checks the registers of one library's kernels, and records their spills.
fn check_shipped(ptxas: &Path, images: &[KernelImage], spills: &mut BTreeMap<String, [u32; SHIPPED.len()]>) {
    for (place, (image, arch)) in SHIPPED.into_iter().enumerate() {
        let image = images.iter().find(|one| one.arch == image).expect("the program has this image");
        let kernels: Vec<_> = warpheap_build::entries(image.ptx).collect();
        assert_eq!(image.ptx.matches(LIMIT).count(), kernels.len(), "every kernel has the limit");
        let left_out =
            |kernel: &str| is_shown(kernel) || arch != "sm_90" && table_of(kernel).0 == "GROUP_SPILLS";
        let measured: Vec<_> = kernels.into_iter().filter(|kernel| !left_out(kernel)).collect();
        let usages = assemble(ptxas, &image.ptx_of(&measured).unwrap(), arch);
        assert_eq!(usages.len(), measured.len(), "ptxas reports every kernel on {arch}");
        for usage in &usages {
            println!("{} on {arch}: {usage:?}", image.arch);
            assert!(usage.registers <= 32, "{arch}: {usage:?}");
            spills.entry(usage.kernel.clone()).or_default()[place] = usage.spill_bytes;
        }
        if arch == "sm_90" && measured.contains(&"stress_heap") {
            check_cuts(ptxas, image, arch, &usages);
        }
    }
}

/// Kernels that a run loads separately compile to the same code as within the full module.
fn check_cuts(ptxas: &Path, image: &KernelImage, arch: &str, among_all: &[Usage]) {
    let config = BenchConfig { rounds: 1, only: Some("heap alloc, 16 B".into()) };
    let stress = StressConfig::new().allocator(AllocatorKind::Heap).kernels();
    for (what, kernels) in [("the heap's stress", stress), ("a figure", bench::kernels(&config))] {
        let ptx = image.ptx_of(&kernels).unwrap();
        let kernels: BTreeSet<_> = kernels.into_iter().collect();
        let start = Instant::now();
        let usages = assemble(ptxas, &ptx, arch);
        println!(
            "{what} on {arch}: {} of {} bytes of PTX, {kernels:?} assembled in {:.1} s",
            ptx.len(),
            image.ptx.len(),
            start.elapsed().as_secs_f64()
        );
        assert_eq!(usages.iter().map(|usage| usage.kernel.as_str()).collect::<BTreeSet<_>>(), kernels);
        let differs = usages.iter().find(|usage| !among_all.contains(usage));
        assert!(differs.is_none(), "{what} on {arch}, without the other kernels: {differs:#?}");
    }
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
fn kernels_and_functions_are_read_off_a_relocatable_report() {
    let report = "ptxas info    : 0 bytes gmem\n\
        ptxas info    : Function properties for slow\n    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads\n\
        ptxas info    : Compile time = 2.1 ms\n\
        ptxas info    : Compiling entry function 'fast' for 'sm_80'\n\
        ptxas info    : Function properties for fast\n    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
        ptxas info    : Used 12 registers, used 0 barriers\n";
    let slow = Part { name: "slow".into(), registers: None, spill_bytes: 16 };
    let fast = Part { name: "fast".into(), registers: Some(12), spill_bytes: 0 };
    assert_eq!(parts(report), [slow, fast]);
}

#[test]
#[should_panic = "is among the lines of one"]
fn lines_of_two_kernels_are_not_mixed_up() {
    let report = "Compiling entry function 'other' for 'sm_80'\nFunction properties for other\n\
        Compiling entry function 'one' for 'sm_80'\nFunction properties for shared\n";
    usages(report);
}

#[test]
fn a_function_is_listed_by_its_module() {
    for (mangled, module) in [
        (
            "_RNvMNtNtCsloMFrLJa7Hw_15warpheap_device4heap4fullNtB4_4Heap9alloc_dry",
            "warpheap_device::heap::full",
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
fn a_growth_of_more_than_a_tenth_is_too_much() {
    let listed = [("slow", [100, 0, 9])];
    for (found, over) in [([110, 0, 9], false), ([111, 0, 0], true), ([0, 1, 0], true), ([0, 0, 10], true)] {
        assert_eq!(is_over(&listed, "slow", &found), over, "{found:?}");
    }
    assert!(is_over(&listed, "other", &[1, 0, 0]) && !is_over(&listed, "other", &[0; 3]));
    let found = [("slow".to_owned(), [1, 2]), ("fast".to_owned(), [0, 0])];
    assert_eq!(lines(found.iter().map(|(name, bytes)| (name, bytes))), "    (\"slow\", [1, 2]),\n");
    assert_eq!(table_of("bench_spin").0, "BENCH_SPILLS");
    assert_eq!(table_of("heap_alloc_many").0, "HOST_SPILLS");
    assert_eq!(table_of("grab_heap").0, "STRESS_SPILLS");
}
