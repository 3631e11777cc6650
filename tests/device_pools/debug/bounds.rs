//! Writes before and past the end of a block.

use super::kernels::{CULPRIT, CULPRIT_AT, STRAY_LINE, THREADS, scribble, stray, take};
use super::support::{Bench, all_devices, benches};
use std::alloc::Layout;
use warpheap::DeviceMemory;
use warpheap_device::fault::FaultKind;
use warpheap_device::heap::debug::CANARY_LEAST;

/// The culprit writes `bytes` bytes, starting at byte `at` of its block. Returns the address of the
/// block.
fn run(bench: &Bench, size: u64, at: i64, bytes: u64) -> u64 {
    bench.run(stray, THREADS, (bench.heap.handle(), size, at, bytes, bench.out.slice()));
    bench.out.copy_to_vec().unwrap()[CULPRIT as usize]
}

#[test]
fn a_byte_behind_a_block_is_an_overrun() {
    for bench in benches(16) {
        for size in [1_u64, 24, 77, 100, 4096, 100_001] {
            for at in [size, size + 1, size + CANARY_LEAST - 1] {
                bench.device.synchronize().unwrap();
                let mut bench = Bench::new(bench.device.clone(), 32 << 20, 16);
                let user = run(&bench, size, at as i64, 1);
                let fault = bench.fault();
                assert_eq!((fault.kind, fault.address), (FaultKind::Overrun, user + at), "{size} {at}");
                assert_eq!((fault.thread, fault.block), CULPRIT_AT);
                assert_eq!(bench.line_of(&fault), STRAY_LINE);
                assert_eq!(bench.heap.leaks(1).unwrap().count, 0);
                bench.heap.reset().unwrap();
                run(&bench, size, 0, size);
                assert_eq!(bench.faults(), [], "the block's own bytes are its own");
            }
        }
    }
}

#[test]
fn a_byte_before_a_block_is_an_underrun() {
    for bench in benches(16) {
        for at in [-1, -(CANARY_LEAST as i64)] {
            let bench = Bench::new(bench.device.clone(), 8 << 20, 16);
            let user = run(&bench, 50, at, 1);
            let fault = bench.fault();
            assert_eq!((fault.kind, fault.address), (FaultKind::Underrun, user.wrapping_add_signed(at)));
            assert_eq!((fault.thread, fault.block), CULPRIT_AT);
            assert_eq!(bench.line_of(&fault), STRAY_LINE);
        }
    }
}

/// The block is never allocated again, because its bounds are lost.
#[test]
fn a_record_that_is_written_over_is_an_underrun_and_is_reported_by_the_check() {
    for bench in benches(16) {
        let user = run(&bench, 50, -40, 8);
        let fault = bench.fault();
        assert_eq!((fault.kind, fault.address, fault.detail), (FaultKind::Underrun, user, 0));
        let broken = bench.heap.check().unwrap();
        assert!(broken.len() == 1 && broken[0].invariant == "D3", "{broken:?}");
        let leaks = bench.heap.leaks(9).unwrap();
        assert_eq!((leaks.count, leaks.first[0].origin, &leaks.sites[0].site), (1, None, &None));
        for _ in 0..20 {
            run(&bench, 50, 0, 0);
        }
        assert_eq!(bench.faults().len(), 1);
    }
}

/// Faults that the host plants, on a GPU as well.
#[test]
fn damage_to_a_block_of_the_host_is_recorded() {
    for device in all_devices() {
        let bench = Bench::new(device, 8 << 20, 4);
        let write = |address: u64| {
            // SAFETY: inside the heap's memory, which is live.
            let mut byte = unsafe { DeviceMemory::from_raw(&bench.device, address, 1) };
            byte.write(0, &[0x11_u8]).unwrap();
        };
        let layout = Layout::from_size_align(33, 1).unwrap();
        let blocks = bench.heap.allocate_many(&[layout; 3]).unwrap();
        let blocks: Vec<_> = blocks.into_iter().map(Option::unwrap).collect();
        let at = |i: usize| blocks[i].0 as u64;
        write(at(0) + 33);
        write(at(1) - 1);
        let broken = bench.heap.check().unwrap();
        let names =
            |at: u64| broken.iter().any(|found| found.found.starts_with(&format!("{at:#x}, out of bounds")));
        assert!(names(at(0) + 33) && names(at(1) - 1), "{broken:?}");
        assert!(broken.len() == 2 && broken.iter().all(|found| found.invariant == "D5"), "{broken:?}");
        // SAFETY: no kernel uses them.
        unsafe { bench.heap.deallocate_many(&blocks) }.unwrap();
        assert_eq!(bench.heap.check().unwrap(), []);
        write(at(2) + 7);
        let found = |count| {
            let faults: Vec<_> =
                bench.faults().iter().map(|fault| (fault.kind as u32, fault.address)).collect();
            assert_eq!(faults.len(), count, "{faults:x?}");
            faults
        };
        assert!(found(2).contains(&(FaultKind::Overrun as u32, at(0) + 33)));
        assert!(found(2).contains(&(FaultKind::Underrun as u32, at(1) - 1)));
        for _ in 0..4 {
            let block = bench.heap.allocate(layout).unwrap().unwrap();
            // SAFETY: no kernel uses it.
            unsafe { bench.heap.deallocate(block) }.unwrap();
        }
        assert!(found(3).contains(&(FaultKind::WriteAfterFree as u32, at(2) + 7)));
        let site = bench.heap.snapshot().unwrap().site(bench.faults()[0].detail).cloned().unwrap();
        assert!(site.file.ends_with("host/kernels/mod.rs"), "{site}");
    }
}

/// Without a free. The canaries of large blocks lie far from the record.
#[test]
fn the_check_sees_what_was_written_out_of_bounds_of_live_blocks() {
    for bench in benches(16) {
        for (size, align) in [(24_u64, 1), (100, 256), (60_000, 8), (200_000, 4), (24, 1 << 20)] {
            let mut bench = Bench::new(bench.device.clone(), 8 << 20, 16);
            bench.run(take, 3, (bench.heap.handle(), size, align, bench.out.slice()));
            assert_eq!(bench.heap.check().unwrap(), []);
            let users = bench.out.copy_to_vec().unwrap();
            for at in [users[1] - 1, users[2] + size] {
                scribble(at, 0x11);
                let broken = bench.heap.check().unwrap();
                let found = broken.iter().find(|broken| broken.found.starts_with(&format!("{at:#x}, ")));
                assert_eq!(found.map(|broken| broken.invariant), Some("D5"), "{size} {at:#x}: {broken:?}");
            }
            assert_eq!(bench.heap.check().unwrap().len(), 2);
            bench.heap.reset().unwrap();
            assert_eq!(bench.heap.check().unwrap(), []);
        }
    }
}
