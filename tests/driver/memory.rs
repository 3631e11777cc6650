//! Allocation: alignment, exact accounting, and errors that state the reason.

use crate::support::{devices, is_cpu};
use warpheap::error::{InvalidRequest, OutOfMemory};
use warpheap::simt::{Executor, Mode};
use warpheap::{Bytes, Device, Error};

#[test]
fn addresses_are_aligned() {
    for device in devices() {
        for align in [1, 256, 512, 4096, 2 << 20] {
            let memory = device.alloc_memory(1000, align).unwrap();
            assert!(memory.address().is_multiple_of(align.max(256) as u64), "{memory:?} for {align}");
            assert_eq!(memory.bytes(), 1000);
        }
        for align in [0, 3, 2 << 30] {
            let error = device.alloc_memory(1000, align).unwrap_err();
            assert!(
                matches!(error, Error::InvalidRequest(InvalidRequest::Alignment { align: a, .. }) if a == align),
                "{error}"
            );
        }
    }
}

#[test]
fn dropped_memory_is_free_again() {
    // A separate device, because the GPU is shared with the other tests.
    let device = Device::cpu_with_executor(Executor::new(Mode::Parallel { workers: 1 }), 1 << 20);
    let free = || device.info().unwrap().memory_free;
    let first = device.zeroed::<u64>(1000).unwrap();
    let second = device.alloc_memory(100, 4096).unwrap();
    assert_eq!(device.memory_in_use(), (8100, 2));
    assert_eq!(free(), (1 << 20) - 8100);
    assert!(device.alloc_memory(free() + 1, 256).is_err(), "beyond the limit");
    drop(device.alloc_memory(free(), 256).unwrap());
    drop(first);
    assert_eq!(device.memory_in_use(), (100, 1));
    drop(second);
    assert_eq!(device.memory_in_use(), (0, 0));
    assert_eq!(free(), 1 << 20);
}

#[test]
fn too_much_is_out_of_memory_with_the_figures() {
    for device in devices() {
        let total = device.info().unwrap().memory_total;
        let error = device.alloc_uninit::<u8>(total as usize * 2).unwrap_err();
        let Error::OutOfMemory(OutOfMemory::Device { requested, free, total: all, .. }) = &error else {
            panic!("{error}")
        };
        assert_eq!(*requested, Bytes(total * 2));
        assert!(*all == Bytes(total) && free <= all, "{error}");
        // The device stays usable.
        assert_eq!(device.from_slice(&[1_u8, 2]).unwrap().copy_to_vec().unwrap(), [1, 2]);
    }
}

#[test]
fn a_length_that_overflows_is_rejected() {
    for device in devices() {
        for len in [usize::MAX, usize::MAX / 8 + 1, isize::MAX as usize / 8 + 1] {
            let error = device.alloc_uninit::<u64>(len).unwrap_err();
            assert!(
                matches!(error, Error::InvalidRequest(InvalidRequest::SizeOverflow { len: l, .. }) if l == len),
                "{error}"
            );
        }
        assert!(matches!(
            device.zeroed::<u128>(usize::MAX),
            Err(Error::InvalidRequest(InvalidRequest::SizeOverflow { .. }))
        ));
    }
}

#[test]
fn memory_is_not_touched_before_it_is_used() {
    // More than any test machine has. Only pages that are written take physical memory.
    let device = Device::cpu_with_executor(Executor::new(Mode::Parallel { workers: 1 }), u64::MAX);
    for absurd in [u64::MAX, 1 << 62] {
        let error = device.alloc_memory(absurd, 256).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory(OutOfMemory::Device { .. })), "{error}");
        assert_eq!(device.info().unwrap().memory_free, u64::MAX);
    }
    let Ok(memory) = device.zeroed_memory(8 << 30, 2 << 20) else {
        return; // The system does not overcommit at all.
    };
    let mut end = [1_u64; 2];
    memory.read((8 << 30) - 16, &mut end).unwrap();
    assert_eq!(end, [0, 0]);
}

#[test]
fn parts_of_memory_are_checked() {
    for device in devices() {
        let memory = device.zeroed_memory(64, 256).unwrap();
        let part = memory.slice_at::<u32>(16, 4).unwrap();
        assert_eq!((part.as_ptr() as u64, part.len()), (memory.address() + 16, 4));
        assert!(matches!(memory.slice_at::<u32>(16, 13), Err(Error::OutOfBounds { .. })));
        assert!(matches!(
            memory.slice_at::<u32>(2, 1),
            Err(Error::InvalidRequest(InvalidRequest::Misaligned { offset: Bytes(2), align: 4, .. }))
        ));
        assert!(matches!(
            memory.slice_at::<u64>(0, u64::MAX),
            Err(Error::InvalidRequest(InvalidRequest::SizeOverflow { .. }))
        ));
    }
}

#[test]
fn info_is_plausible() {
    for device in devices() {
        let info = device.info().unwrap();
        assert_eq!((info.backend, info.warp_size), (device.backend(), 32));
        assert!(!info.name.is_empty() && info.multiprocessors > 0 && info.max_threads_per_block >= 1024);
        assert!(0 < info.memory_free && info.memory_free <= info.memory_total, "{info:?}");
        assert_eq!(info.compute_capability.is_none(), is_cpu(&device));
        assert_eq!(device.raw_context().is_null(), is_cpu(&device));
    }
}
