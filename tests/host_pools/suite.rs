//! Properties of every allocator. Each test runs over all cases and devices.

use crate::kernels::{double, linger};
use crate::prelude::*;

/// Runs a test over all cases and devices.
pub fn each(test: impl Fn(&Case, &Device, Any)) {
    for device in devices() {
        for case in cases() {
            let (before, _) = device.memory_in_use();
            let allocator = case.build(&device);
            assert_eq!(allocator.device(), &device);
            test(&case, &device, allocator);
            // A GPU is used by other tests at the same time.
            let (after, _) = device.memory_in_use();
            assert!(!is_cpu(&device) || after == before, "{case} leaks");
        }
    }
}

/// Allocates blocks of the largest size until the allocator is out of memory; 300 if the capacity
/// depends on the device.
pub fn alloc_all(case: &Case, allocator: &dyn DeviceAllocator, stream: &Stream) -> Vec<Block> {
    let room = case.room.unwrap_or(300);
    (0..room).map(|_| alloc(&allocator, case.max, stream)).collect()
}

/// The error of an allocation that must fail.
fn rejected(allocator: &dyn DeviceAllocator, layout: Layout, stream: &Stream) -> Error {
    allocator.allocate(layout, stream).expect_err("the allocation must fail")
}

#[test]
fn blocks_are_aligned_disjoint_and_keep_their_contents() {
    each(|case, device, allocator| {
        let stream = device.stream().unwrap();
        let mut blocks = Vec::new();
        for size in [1, 3, 64, 100, 1000, 4096, case.max.size()] {
            for align in [1, 8, 256, case.max.align()] {
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
        let requested: usize = blocks.iter().map(|(_, layout)| layout.size()).sum();
        let usage = allocator.usage();
        assert!(
            usage.used_bytes >= requested as u64 && usage.reserved_bytes >= usage.used_bytes,
            "{case}: {usage:?}"
        );
        free_all(&allocator, blocks, &stream);
        assert_eq!(allocator.usage().used_bytes, 0, "{case}");
    });
}

#[test]
fn reports_have_the_figures_of_the_usage() {
    each(|case, device, allocator| {
        let stream = device.stream().unwrap();
        let mut blocks = alloc_all(case, &allocator, &stream);
        blocks.drain(..blocks.len() / 2).for_each(|block| free(&allocator, block, &stream).unwrap());
        let (report, usage) = (allocator.report(), allocator.usage());
        let live: u64 = blocks.iter().map(|(_, layout)| layout.size() as u64).sum();
        assert!(report.used_bytes >= live && report.used_bytes <= usage.used_bytes, "{case}: {report}");
        assert_eq!(report.reserved_bytes, usage.reserved_bytes, "{case}: {report}");
        let held: u64 = report.holders.iter().map(|holder| holder.blocks).sum();
        let drawn: u64 = report.picture.iter().map(|cell| cell.used_bytes).sum();
        assert!(held == blocks.len() as u64 && report.request.is_none(), "{case}: {report}");
        assert!(
            report.picture.is_empty() || drawn == report.used_bytes || case.to_string().contains("bump"),
            "{case}: {drawn}: {report}"
        );
        assert!(report.free_bytes <= usage.reserved_bytes - live, "{case}: {report}");
        free_all(&allocator, blocks, &stream);
        assert_eq!((allocator.report().used_bytes, allocator.report().holders.len()), (0, 0), "{case}");
    });
}

#[test]
fn the_capacity_is_exact() {
    each(|case, device, allocator| {
        let Some(room) = case.room else { return };
        let stream = device.stream().unwrap();
        for _ in 0..3 {
            let mut blocks = alloc_all(case, &allocator, &stream);
            let error = rejected(&allocator, case.max, &stream);
            let ([requested, used, reserved, largest], size) = (figures(&error), case.max.size() as u64);
            assert_eq!((requested, used, reserved), (size, room as u64 * size, room as u64 * size));
            assert!(largest < size && error.to_string().contains("free blocks"), "{case}: {error}");
            free(&allocator, blocks.pop().unwrap(), &stream).unwrap();
            blocks.push(alloc(&allocator, case.max, &stream));
            rejected(&allocator, case.max, &stream);
            free_all(&allocator, blocks, &stream);
            assert_eq!(allocator.usage().used_bytes, 0, "{case}");
        }
    });
}

#[test]
fn invalid_frees_fail_and_change_nothing() {
    each(|case, device, allocator| {
        let stream = device.stream().unwrap();
        let (first, second) = {
            let mut two = (0..2).map(|_| alloc(&allocator, case.max, &stream));
            (two.next().unwrap(), two.next().unwrap())
        };
        let used = allocator.usage();
        let wrong = |block: Block, words: &str| {
            let error = free(&allocator, block, &stream).unwrap_err();
            assert!(matches!(error, Error::InvalidFree(InvalidFree::Block { .. })), "{case}: {error}");
            let address = format!("{:#x}", block.0.0 as usize);
            let message = error.to_string();
            assert!(message.contains(words) && message.contains(&address), "{case}: {error}");
            assert_eq!(allocator.usage(), used, "{case}");
        };
        let inside = |(ptr, layout): Block, by| (DevicePtr(ptr.0.wrapping_add(by)), layout);
        let foreign = device.zeroed::<u64>(512).unwrap();
        wrong((DevicePtr(foreign.ptr().0.cast()), case.max), "cannot free");
        wrong((DevicePtr::null(), case.max), "cannot free");
        wrong((DevicePtr(usize::MAX as *mut u8), case.max), "cannot free");
        wrong(inside(first, 1), "it lies inside of");
        wrong(inside(second, case.max.size() - 1), "it lies inside of");
        wrong((first.0, layout(case.max.size() - 1, case.max.align())), "allocated as");
        wrong((first.0, layout(case.max.size(), 1)), "allocated as");
        free(&allocator, second, &stream).unwrap();
        let used = allocator.usage();
        let twice = free(&allocator, second, &stream).unwrap_err();
        assert!(matches!(twice, Error::InvalidFree(InvalidFree::Block { .. })), "{case}: {twice}");
        assert!(["is already free", "freed before"].iter().any(|words| twice.to_string().contains(words)));
        assert_eq!(allocator.usage(), used, "{case}");
        free(&allocator, first, &stream).unwrap();
        assert_eq!(allocator.usage().used_bytes, 0, "{case}");
    });
}

#[test]
fn invalid_requests_are_rejected() {
    each(|case, device, allocator| {
        let (stream, other) = (device.stream().unwrap(), Device::cpu().stream().unwrap());
        let error = rejected(&allocator, layout(0, 1), &stream);
        assert!(matches!(error, Error::InvalidRequest(InvalidRequest::Layout { .. })), "{case}: {error}");
        for layout in [layout(1 << 62, 1), layout(1, 1 << 40)] {
            rejected(&allocator, layout, &stream);
        }
        let error = rejected(&allocator, case.max, &other);
        assert!(matches!(error, Error::WrongDevice { what: "the stream", .. }), "{case}: {error}");
        assert_eq!(allocator.usage().used_bytes, 0, "{case}");

        let block = alloc(&allocator, case.max, &stream);
        let error = free(&allocator, block, &other).unwrap_err();
        assert!(matches!(error, Error::WrongDevice { what: "the stream", .. }), "{case}: {error}");
        free(&allocator, block, &stream).unwrap();
    });
}

/// A kernel of the first owner writes long after `deallocate` was called. The next owner of the
/// block is ordered after that write.
#[test]
fn a_block_is_reused_only_after_the_work_before_its_free() {
    each(|case, device, allocator| {
        let (module, first, second) = (module(device), device.stream().unwrap(), device.stream().unwrap());
        for other in [&second, &first] {
            let block = alloc(&allocator, case.max, &first);
            let values = first_word(device, block);
            launch_linger(&first, &module, values, 20_000);
            free(&allocator, block, &first).unwrap();
            if case.is_the_driver() {
                assert!(first.is_done().unwrap(), "{case} on {device}: its frees wait");
                continue;
            }
            // Allocate all blocks, so that this one is among them, unless a limit is lower.
            let blocks = alloc_all(case, &allocator, other);
            let is_there = blocks.iter().any(|(ptr, _)| ptr.0 == block.0.0);
            assert!(is_there || case.room != Some(BLOCKS), "{case}");
            if is_there {
                // SAFETY: one thread, and the block belongs to this stream.
                unsafe { other.launch(&module, double, &ONE, (values,)) }.unwrap();
                assert_eq!(read_word(device, block), 2, "{case} on {device}");
            }
            free_all(&allocator, blocks, other);
        }
    });
}

#[test]
fn streams_may_be_dropped_while_frees_are_pending() {
    each(|case, device, allocator| {
        let module = module(device);
        for _ in 0..3 {
            let stream = device.stream().unwrap();
            let blocks = alloc_all(case, &allocator, &stream);
            let values = first_word(device, blocks[0]);
            launch_linger(&stream, &module, values, 2000);
            free_all(&allocator, blocks, &stream);
        }
        assert_eq!(allocator.usage().used_bytes, 0, "{case}");
    });
}

#[test]
fn a_drop_waits_for_kernels_that_use_the_blocks() {
    each(|case, device, allocator| {
        let (module, streams) = (module(device), [(); 2].map(|()| device.stream().unwrap()));
        let blocks = streams.each_ref().map(|stream| alloc(&allocator, case.max, stream));
        let values = blocks.map(|block| first_word(device, block));
        // The work of the last free ends first.
        for ((stream, values), micros) in streams.iter().zip(values).zip([20_000, 2000]) {
            launch_linger(stream, &module, values, micros);
        }
        let ended = streams.each_ref().map(|stream| stream.record().unwrap());
        if case.room.is_some() {
            for (block, stream) in blocks.into_iter().zip(&streams) {
                free(&allocator, block, stream).unwrap();
            }
        }
        drop(allocator);
        // A GPU's driver keeps the memory of a stream-ordered pool until the kernel has ended,
        // without a wait by the host.
        let waits = is_cpu(device) || !case.is_stream_ordered();
        let all_ended = ended.iter().all(|event| event.is_done().unwrap());
        assert!(!waits || all_ended, "{case}: the memory went while a kernel was in flight");
        // Only the CPU knows that the memory was freed; a GPU would run the kernel.
        if is_cpu(device) {
            // SAFETY: the launch is rejected.
            let late =
                unsafe { streams[0].launch(&module, linger, &LaunchConfig::linear(1, 1), (values[0], 1)) };
            assert!(matches!(late, Err(Error::Dangling(Dangling::Argument { .. }))), "{case}: {late:?}");
        }
    });
}
