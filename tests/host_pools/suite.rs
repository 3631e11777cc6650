//! Properties of every allocator. Each test runs over all cases and devices.

use crate::cases::{Any, BLOCKS, Case, cases, layout};
use crate::kernels::{double, linger};
use crate::support::{devices, is_cpu, module};
use std::alloc::Layout;
use warpheap::error::{Dangling, InvalidFree, InvalidRequest, OutOfMemory};
use warpheap::host_pools::DeviceAllocator;
use warpheap::{Device, DeviceMemory, Error, LaunchConfig, Stream};
use warpheap_device::kernel::DevicePtr;

pub type Block = (DevicePtr<u8>, Layout);

/// Runs a test over all cases and devices.
pub fn each(test: impl Fn(&Case, &Device, Any)) {
    for device in devices() {
        for case in cases() {
            let (before, _) = device.memory_in_use();
            let allocator = case.on(&device);
            assert_eq!(allocator.device(), &device);
            test(&case, &device, allocator);
            // A GPU is used by other tests at the same time.
            let (after, _) = device.memory_in_use();
            assert!(!is_cpu(&device) || after == before, "{case} leaks");
        }
    }
}

pub fn give(allocator: &dyn DeviceAllocator, (ptr, layout): Block, stream: &Stream) -> Result<(), Error> {
    // SAFETY: if it is a block of the allocator, no other stream uses it.
    unsafe { allocator.deallocate(ptr, layout, stream) }
}

/// The memory of a block, for access from the host.
pub fn memory(device: &Device, (ptr, layout): Block) -> DeviceMemory {
    // SAFETY: it lies in an allocation of the device.
    unsafe { DeviceMemory::from_raw(device, ptr.0 as u64, layout.size() as u64) }
}

/// Allocates blocks of the largest size until the allocator is out of memory; 300 if the capacity
/// depends on the device.
pub fn take_all(case: &Case, allocator: &dyn DeviceAllocator, stream: &Stream) -> Vec<Block> {
    let room = case.room.unwrap_or(300);
    (0..room).map(|_| (allocator.allocate(case.most, stream).unwrap(), case.most)).collect()
}

/// The error of an allocation that must fail.
fn refused(allocator: &dyn DeviceAllocator, layout: Layout, stream: &Stream) -> Error {
    allocator.allocate(layout, stream).expect_err("it is refused")
}

#[test]
fn blocks_are_aligned_apart_and_keep_what_is_written() {
    each(|case, device, allocator| {
        let stream = device.stream().unwrap();
        let mut blocks = Vec::new();
        for size in [1, 3, 64, 100, 1000, 4096, case.most.size()] {
            for align in [1, 8, 256, case.most.align()] {
                let layout = layout(size, align);
                let ptr = allocator.allocate(layout, &stream).unwrap();
                assert!((ptr.0 as usize).is_multiple_of(align), "{case}: {layout:?} at {ptr:?}");
                let number = blocks.len() as u8 + 1;
                memory(device, (ptr, layout)).fill(number).unwrap();
                blocks.push((ptr, layout));
            }
        }
        let mut ranges: Vec<_> = blocks.iter().map(|(ptr, of)| (ptr.0 as usize, of.size())).collect();
        ranges.sort_unstable();
        assert!(ranges.is_sorted_by(|(start, size), (next, _)| start + size <= *next), "{case}: {ranges:x?}");
        for (number, block) in (1_u8..).zip(&blocks) {
            let mut bytes = vec![0; block.1.size()];
            memory(device, *block).read(0, &mut bytes).unwrap();
            assert!(bytes.iter().all(|byte| *byte == number), "{case}: block {number}");
        }
        let asked: usize = blocks.iter().map(|(_, layout)| layout.size()).sum();
        let usage = allocator.usage();
        assert!(
            usage.used_bytes >= asked as u64 && usage.reserved_bytes >= usage.used_bytes,
            "{case}: {usage:?}"
        );
        for block in blocks {
            give(&allocator, block, &stream).unwrap();
        }
        assert_eq!(allocator.usage().used_bytes, 0, "{case}");
    });
}

#[test]
fn there_are_exactly_as_many_blocks_as_there_is_room_for() {
    each(|case, device, allocator| {
        let Some(room) = case.room else { return };
        let stream = device.stream().unwrap();
        for _ in 0..3 {
            let mut blocks = take_all(case, &allocator, &stream);
            let error = refused(&allocator, case.most, &stream);
            let Error::OutOfMemory(OutOfMemory::Pool { requested, used, reserved, largest, .. }) = &error
            else {
                panic!("{case}: {error}")
            };
            let size = case.most.size() as u64;
            assert_eq!((requested.0, used.0, reserved.0), (size, room as u64 * size, room as u64 * size));
            assert!(largest.0 < size && error.to_string().contains("free blocks"), "{case}: {error}");
            let last = blocks.pop().unwrap();
            give(&allocator, last, &stream).unwrap();
            assert_eq!(allocator.allocate(case.most, &stream).unwrap().0, last.0.0, "{case}: the only one");
            blocks.push(last);
            for block in blocks {
                give(&allocator, block, &stream).unwrap();
            }
            assert_eq!(allocator.usage().used_bytes, 0, "{case}");
        }
    });
}

#[test]
fn what_was_not_allocated_or_otherwise_cannot_be_given_back() {
    each(|case, device, allocator| {
        let stream = device.stream().unwrap();
        let (first, second) = {
            let mut two = (0..2).map(|_| (allocator.allocate(case.most, &stream).unwrap(), case.most));
            (two.next().unwrap(), two.next().unwrap())
        };
        let used = allocator.usage();
        let wrong = |block: Block, words: &str| {
            let error = give(&allocator, block, &stream).unwrap_err();
            assert!(matches!(error, Error::InvalidFree(InvalidFree::Block { .. })), "{case}: {error}");
            let address = format!("{:#x}", block.0.0 as usize);
            let message = error.to_string();
            assert!(message.contains(words) && message.contains(&address), "{case}: {error}");
            assert_eq!(allocator.usage(), used, "{case}");
        };
        let inside = |(ptr, layout): Block, by| (DevicePtr(ptr.0.wrapping_add(by)), layout);
        let foreign = device.zeroed::<u64>(512).unwrap();
        wrong((DevicePtr(foreign.ptr().0.cast()), case.most), "cannot free");
        wrong((DevicePtr::null(), case.most), "cannot free");
        wrong((DevicePtr(usize::MAX as *mut u8), case.most), "cannot free");
        wrong(inside(first, 1), "it lies inside of");
        wrong(inside(second, case.most.size() - 1), "it lies inside of");
        wrong((first.0, layout(case.most.size() - 1, case.most.align())), "allocated as");
        wrong((first.0, layout(case.most.size(), 1)), "allocated as");
        give(&allocator, second, &stream).unwrap();
        let used = allocator.usage();
        let twice = give(&allocator, second, &stream).unwrap_err();
        assert!(matches!(twice, Error::InvalidFree(InvalidFree::Block { .. })), "{case}: {twice}");
        assert!(["is already free", "freed before"].iter().any(|words| twice.to_string().contains(words)));
        assert_eq!(allocator.usage(), used, "{case}");
        give(&allocator, first, &stream).unwrap();
        assert_eq!(allocator.usage().used_bytes, 0, "{case}");
    });
}

#[test]
fn requests_that_are_none_are_refused() {
    each(|case, device, allocator| {
        let (stream, other) = (device.stream().unwrap(), Device::cpu().stream().unwrap());
        let error = refused(&allocator, layout(0, 1), &stream);
        assert!(matches!(error, Error::InvalidRequest(InvalidRequest::Layout { .. })), "{case}: {error}");
        for layout in [layout(1 << 62, 1), layout(1, 1 << 40)] {
            refused(&allocator, layout, &stream);
        }
        let error = refused(&allocator, case.most, &other);
        assert!(matches!(error, Error::WrongDevice { what: "the stream", .. }), "{case}: {error}");
        assert_eq!(allocator.usage().used_bytes, 0, "{case}");

        let block = (allocator.allocate(case.most, &stream).unwrap(), case.most);
        let error = give(&allocator, block, &other).unwrap_err();
        assert!(matches!(error, Error::WrongDevice { what: "the stream", .. }), "{case}: {error}");
        give(&allocator, block, &stream).unwrap();
    });
}

/// A kernel of the first owner writes long after `deallocate` was called. The next owner of the
/// block is ordered after that write.
#[test]
fn a_block_is_used_again_only_after_the_work_that_it_was_freed_behind() {
    const ONE: LaunchConfig = LaunchConfig::linear(1, 1);
    each(|case, device, allocator| {
        let (module, first, second) = (module(device), device.stream().unwrap(), device.stream().unwrap());
        for other in [&second, &first] {
            let block = (allocator.allocate(case.most, &first).unwrap(), case.most);
            let values = memory(device, block).slice_at::<u32>(0, 1).unwrap();
            // SAFETY: one thread, which has finished with the block when the free runs in its
            // stream.
            unsafe { first.launch(&module, linger, &ONE, (values, 20_000)) }.unwrap();
            give(&allocator, block, &first).unwrap();
            if case.is_the_driver() {
                assert!(first.is_done().unwrap(), "{case} on {device}: its frees wait");
                continue;
            }
            // Allocate all blocks, so that this one is among them, unless a limit is lower.
            let blocks = take_all(case, &allocator, other);
            let is_there = blocks.iter().any(|(ptr, _)| ptr.0 == block.0.0);
            assert!(is_there || case.room != Some(BLOCKS), "{case}");
            if is_there {
                // SAFETY: one thread, and the block belongs to this stream.
                unsafe { other.launch(&module, double, &ONE, (values,)) }.unwrap();
                let mut value = [0_u32];
                memory(device, block).read(0, &mut value).unwrap();
                assert_eq!(value, [2], "{case} on {device}");
            }
            for block in blocks {
                give(&allocator, block, other).unwrap();
            }
        }
    });
}

#[test]
fn streams_may_go_while_blocks_that_were_freed_on_them_are_pending() {
    each(|case, device, allocator| {
        let module = module(device);
        for _ in 0..3 {
            let stream = device.stream().unwrap();
            let blocks = take_all(case, &allocator, &stream);
            let values = memory(device, blocks[0]).slice_at::<u32>(0, 1).unwrap();
            // SAFETY: one thread, which has finished with the block when the free runs in its
            // stream.
            unsafe { stream.launch(&module, linger, &LaunchConfig::linear(1, 1), (values, 2000)) }.unwrap();
            for block in blocks {
                give(&allocator, block, &stream).unwrap();
            }
        }
        assert_eq!(allocator.usage().used_bytes, 0, "{case}");
    });
}

#[test]
fn its_end_waits_for_the_kernels_that_use_its_blocks() {
    each(|case, device, allocator| {
        let (module, stream) = (module(device), device.stream().unwrap());
        let block = (allocator.allocate(case.most, &stream).unwrap(), case.most);
        let values = memory(device, block).slice_at::<u32>(0, 1).unwrap();
        // SAFETY: one thread, and the drop of the allocator waits for it.
        unsafe { stream.launch(&module, linger, &LaunchConfig::linear(1, 1), (values, 20_000)) }.unwrap();
        let ended = stream.record().unwrap();
        if case.room.is_some() {
            give(&allocator, block, &stream).unwrap();
        }
        drop(allocator);
        // A GPU's driver keeps the memory of a stream-ordered pool until the kernel has ended,
        // without a wait by the host.
        let waits = is_cpu(device) || !case.is_stream_ordered();
        assert!(!waits || ended.is_done().unwrap(), "{case}: the memory went while a kernel was in flight");
        // Only the CPU knows that the memory was freed; a GPU would run the kernel.
        if is_cpu(device) {
            // SAFETY: the launch is rejected.
            let late = unsafe { stream.launch(&module, linger, &LaunchConfig::linear(1, 1), (values, 1)) };
            assert!(matches!(late, Err(Error::Dangling(Dangling::Argument { .. }))), "{case}: {late:?}");
        }
    });
}
