//! Panics of threads: reported once, with place and number, while device and stream continue. On
//! the CPU in parallel mode and replayed under some seeds, and on a GPU with each kernel image.
//!
//! What ends a grid, and what is printed, is tested in separate processes: on a GPU, the first
//! makes the context unusable.
//!
//! A kernel for a GPU that cannot panic does not reach the panic handler, so the handler costs it
//! no registers. The registers of the other kernels are checked by `ptx_resources`.
#![cfg(not(loom))]

mod apart;
mod support;

use std::alloc::Layout;
use support::{BLOCK, Fixture, PANICS, THREADS, fixtures, panic_of};
use warpheap::error::{Error, InvalidModule};
use warpheap::simt::OnPanic;
use warpheap::{Backend, Device, KernelImage, kernel_names};
use warpheap_harness::kernels::panics::{CHECK_LINE, Check, INDEX_LINE, demo_check};

/// 205 of 1024 threads index out of bounds.
#[test]
fn threads_that_index_out_of_bounds_are_reported_and_the_others_continue() {
    for mut fixture in fixtures(8) {
        let name = &*fixture.name.clone();
        for _ in 0..2 {
            fixture.index(THREADS - PANICS);
            let error = fixture.stream.synchronize().expect_err(name);
            let panic = panic_of(&error);
            assert!(panic.file.ends_with("kernels/panics.rs"), "{name}: {error}");
            assert_eq!((panic.line, panic.others), (INDEX_LINE, u64::from(PANICS) - 1), "{name}: {error}");
            let thread = panic.block as u32 * BLOCK + panic.thread;
            assert!((THREADS - PANICS..THREADS).contains(&thread), "{name}: {error}");
            let text = error.to_string();
            let begin = format!("kernel `demo_index` panicked at {}:{INDEX_LINE}:", panic.file);
            assert!(text.starts_with(&begin) && text.contains(", and 204 others"), "{name}: {text}");
            fixture
                .expect_message(&text, &format!("the len is {} but the index is {thread}", THREADS - PANICS));
            assert!(!error.is_fatal() && text.contains("Heap::leaks"), "{name}: {text}");

            fixture.stream.synchronize().expect(name);
            let out = fixture.out.copy_to_vec().expect(name);
            assert!(
                (0..).zip(&out).all(|(i, out)| *out == if i < THREADS - PANICS { i } else { 0 }),
                "{name}"
            );
            assert_eq!(fixture.heap.leaks(0).unwrap().count, u64::from(PANICS), "{name}");

            // The next launch works.
            fixture.heap.reset().expect(name);
            fixture.index(THREADS);
            fixture.stream.synchronize().expect(name);
            assert!((0..).zip(fixture.out.copy_to_vec().unwrap()).all(|(i, out)| i == out), "{name}");
            assert_eq!(fixture.heap.leaks(0).unwrap().count, 0, "{name}");
        }
    }
}

#[test]
fn each_call_that_waits_reports_panics_once() {
    type Wait = fn(&Fixture) -> Result<(), Error>;
    let waits: [(&str, Wait); 6] = [
        ("the stream", |fixture| fixture.stream.synchronize()),
        ("the device", |fixture| fixture.device.synchronize()),
        ("an event", |fixture| fixture.stream.record()?.synchronize()),
        ("a copy", |fixture| fixture.out.copy_to_vec().map(drop)),
        ("is_done of a stream", |fixture| {
            while !fixture.stream.is_done()? {}
            Ok(())
        }),
        ("is_done of an event", |fixture| {
            let event = fixture.stream.record()?;
            while !event.is_done()? {}
            Ok(())
        }),
    ];
    for mut fixture in fixtures(2) {
        for (what, wait) in waits {
            fixture.index(THREADS - 1);
            let error = wait(&fixture).expect_err(what);
            assert_eq!(panic_of(&error).others, 0, "{what} of {}: {error}", fixture.name);
            for (what, wait) in waits {
                wait(&fixture).expect(what);
            }
        }
    }
}

/// A pool that fails because of a panic elsewhere would lose blocks, or not say that it freed one.
#[test]
fn calls_of_pools_leave_panics_to_the_next_wait() {
    for mut fixture in fixtures(2) {
        let name = &*fixture.name.clone();
        let layout = Layout::new::<[u64; 2]>();
        let kept = fixture.heap.allocate(layout).expect(name).expect(name);
        fixture.index(THREADS - 1);
        let block = fixture.heap.allocate(layout).expect(name).expect(name);
        for block in [block, kept] {
            // SAFETY: no kernel has the address.
            unsafe { fixture.heap.deallocate(block) }.expect(name);
        }
        // SAFETY: as above.
        unsafe { fixture.heap.deallocate(block) }.expect_err("a double free");
        assert_eq!(fixture.heap.faults().expect(name).count, 0, "{name}");
        assert_eq!(fixture.heap.leaks(0).expect(name).count, 1, "{name}: of the thread that panicked");
        let start = fixture.stream.record().expect(name);
        fixture.stream.record().expect(name).elapsed(&start).expect(name);

        let (mut memory, mut word) = (fixture.device.zeroed_memory(8, 8).expect(name), [0_u64]);
        memory.write(0, &[7_u64]).expect(name);
        let error = memory.read(0, &mut word).expect_err(name);
        assert_eq!((panic_of(&error).others, word), (0, [7]), "{name}: {error}, and the copy is done");
        fixture.stream.synchronize().expect(name);
    }
}

#[test]
fn panics_of_several_kernels_are_one_report() {
    for mut fixture in fixtures(2) {
        for _ in 0..3 {
            fixture.index(THREADS - 2);
        }
        // Calls that only wait do not report.
        fixture.module.set_on_panic(OnPanic::EndThread).unwrap();
        let error = fixture.device.synchronize().expect_err(&fixture.name);
        assert_eq!(panic_of(&error).others, 5, "{}: {error}", fixture.name);
    }
}

/// With the place of each. Kernels for a GPU are built without debug assertions.
#[test]
fn each_kind_of_check_is_reported() {
    let checks = [Check::Assert, Check::Division, Check::Unwrap, Check::DebugAssert, Check::Overflow];
    for fixture in fixtures(4) {
        for check in checks {
            let is_checked = match check {
                Check::DebugAssert | Check::Overflow => {
                    cfg!(debug_assertions) && fixture.device.backend() == Backend::Cpu
                }
                _ => true,
            };
            fixture.check(check, 0);
            fixture.stream.synchronize().unwrap_or_else(|error| panic!("{check:?}: {error}"));
            fixture.check(check, 1);
            let found = fixture.stream.synchronize();
            assert_eq!(found.is_err(), is_checked, "{}, {check:?}: {found:?}", fixture.name);
            let Err(error) = found else { continue };
            let panic = panic_of(&error);
            let line = CHECK_LINE + 1 + check as u32;
            assert_eq!((panic.line, panic.others), (line, 0), "{check:?}: {error}");
            assert_eq!((panic.thread, panic.block), (70, 0), "{check:?}: {error}");
            if check == Check::Assert {
                fixture.expect_message(&error.to_string(), "one is 1");
            }
            let out = fixture.out.copy_to_vec().unwrap();
            assert!(out.iter().zip(0..).all(|(out, i)| (*out == 1) == (i != 70)), "{check:?}");
        }
    }
}

#[test]
fn a_module_without_the_handler_has_no_setting() {
    const PTX: &str = ".version 7.0 .target sm_70 .visible .entry demo_check() { ret; }";
    let module = Device::cpu().load_kernels(PTX, &kernel_names![demo_check]).unwrap();
    let error = module.set_on_panic(OnPanic::EndGrid).unwrap_err();
    assert!(matches!(error, Error::InvalidModule(InvalidModule::NoPanicHandler { .. })), "{error}");
}

/// Kernels that cannot panic. The slow path of a heap's allocation divides, so kernels that
/// allocate from one are not among them.
const CANNOT_PANIC: [&str; 10] = [
    "bench_free_floor",
    "bench_freelist_alloc",
    "bench_freelist_churn",
    "bench_freelist_free",
    "bench_heap_free",
    "bench_heap_free_sparse",
    "bench_spin",
    "free_all_heap",
    "heap_free_many",
    "self_test",
];

/// Kernels that check an index or divide.
const CAN_PANIC: [&str; 3] = ["demo_check", "demo_index", "collect_vec"];

/// Whether `kernel`, or a function that it can reach, reads the variable of the panic handler.
fn can_panic(image: &KernelImage, kernel: &'static str) -> bool {
    image.ptx_of(&[kernel]).unwrap().contains("[warpheap_panics")
}

#[test]
fn kernels_that_cannot_panic_do_not_contain_the_handler() {
    let images = [warpheap::build_info::images(), warpheap_harness::build_info::images()];
    let mut seen = 0;
    for image in images.into_iter().flat_map(|images| images.unwrap_or_default()) {
        assert!(image.ptx.contains(" warpheap_panics["), "the host finds the variable in each module");
        let kernels: Vec<_> = warpheap_build::entries(image.ptx).collect();
        let listed = CANNOT_PANIC.map(|kernel| (kernel, false)).into_iter();
        for (kernel, can) in listed.chain(CAN_PANIC.map(|kernel| (kernel, true))) {
            if kernels.contains(&kernel) {
                assert_eq!(can_panic(image, kernel), can, "{kernel} for {}", image.arch);
                seen += 1;
            }
        }
    }
    assert!([0, 2 * (CANNOT_PANIC.len() + CAN_PANIC.len())].contains(&seen), "{seen} of the kernels exist");
}
