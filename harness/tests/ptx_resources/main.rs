//! Assembles the kernels for real architectures with NVIDIA's ptxas. Without a register limit, no
//! kernel's own code may spill registers. With the program's limit, each kernel must allow full
//! occupancy.
//!
//! ptxas has two modes. In *whole* mode, which drivers use, a kernel is compiled with a copy of
//! every function it can reach. The kernels that ship are checked in this mode, which takes a
//! minute and more per architecture. In *relocatable* mode (`--compile-only`), each kernel and each
//! function is compiled once, to be linked later. This takes seconds, so all architectures are
//! checked in this mode. In it, registers that a function saves for its callers count as spills; in
//! whole mode the function has registers of its own instead, up to 255 for the kernel.
//! `tests/ptx/call_sites.rs` checks how close a kernel comes to that limit.
//!
//! ptxas is looked up in `WARPHEAP_PTXAS` and on the PATH. Without it the test passes, unless
//! `WARPHEAP_REQUIRE_PTXAS=1`. With `--nocapture` it prints the registers of each kernel. A failing
//! test prints the corrected rows of its tables.

#[path = "../../../tests/ptx/support/mod.rs"]
mod ptx;
mod tables;

use ptx::assembler::{Part, Usage, assemble, assemble_apart, parts, ptxas, usages};
use ptx::{SHIPPED_KERNELS, built, required};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;
use std::path::Path;
use std::thread;
use std::time::Instant;
use tables::{ARCHS, FUNCTION_SPILLS, SHIPPED, TABLES, is_over, lines, may_spill, module_of, table_of};
use warpheap::KernelImage;
use warpheap_harness::bench::{self, BenchConfig};
use warpheap_harness::build_info;
use warpheap_harness::stress::{AllocatorKind, StressConfig};

/// The register limit of the program's kernels.
const LIMIT: &str = ".maxnreg 32";

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
    let over: Vec<_> = saves.iter().filter(|(name, found)| is_over(FUNCTION_SPILLS, name, found)).collect();
    assert!(over.is_empty(), "{over:?}: functions save more than listed; all:\n{}", lines(&saves));
}

/// The shipped kernels have a limit, under which slow paths may spill. For Rust's collections and
/// for panics only the limit is checked.
#[test]
fn the_kernels_of_the_program_leave_registers_for_every_warp() {
    let Some(ptxas) = ptxas() else { return };
    let mut spills = BTreeMap::<String, [u32; SHIPPED.len()]>::new();
    let of_harness = [build_info::images(), build_info::suite::images()];
    for images in [warpheap::build_info::images()].into_iter().chain(of_harness) {
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

/// Checks the registers of one library's kernels, and records their spills. Assembles for all
/// architectures in parallel.
fn check_shipped(ptxas: &Path, images: &[KernelImage], spills: &mut BTreeMap<String, [u32; SHIPPED.len()]>) {
    let measured = thread::scope(|scope| {
        let started =
            SHIPPED.map(|(image, arch)| scope.spawn(move || check_registers(ptxas, images, image, arch)));
        started.map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
    });
    for (place, usages) in measured.into_iter().enumerate() {
        for usage in usages {
            spills.entry(usage.kernel).or_default()[place] = usage.spill_bytes;
        }
    }
}

/// Checks the registers of the kernels of one image on an architecture.
fn check_registers(ptxas: &Path, images: &[KernelImage], image: &str, arch: &str) -> Vec<Usage> {
    let image = images.iter().find(|one| one.arch == image).expect("the program has this image");
    let kernels: Vec<_> = warpheap_build::entries(image.ptx).collect();
    assert_eq!(image.ptx.matches(LIMIT).count(), kernels.len(), "every kernel has the limit");
    let left_out =
        |kernel: &str| may_spill(kernel) || arch != "sm_90" && table_of(kernel).0 == "GROUP_SPILLS";
    let measured: Vec<_> = kernels.into_iter().filter(|kernel| !left_out(kernel)).collect();
    let usages = assemble(ptxas, &image.ptx_of(&measured).unwrap(), arch);
    assert_eq!(usages.len(), measured.len(), "ptxas reports every kernel on {arch}");
    for usage in &usages {
        println!("{} on {arch}: {usage:?}", image.arch);
        assert!(usage.registers <= 32, "{arch}: {usage:?}");
    }
    if arch == "sm_90" && measured.contains(&"stress_heap") {
        check_cuts(ptxas, image, arch, &usages);
    }
    usages
}

/// Kernels that a run loads separately compile to the same code as within the full module.
fn check_cuts(ptxas: &Path, image: &KernelImage, arch: &str, among_all: &[Usage]) {
    let config = BenchConfig { figure: Some("heap alloc, 16 B".into()), ..BenchConfig::default() };
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
