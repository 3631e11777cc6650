//! Handles: their contents, when and on which stream they free their block, and what the type
//! system permits.

mod ends;
mod threads;
mod values;

use crate::kernels::double;
use crate::prelude::*;
use crate::suite::{alloc_all, each};

const LONG_MICROS: u32 = 20_000;

/// How the handle learns of the second stream, on which a kernel still writes, and how the handle
/// ends.
type End = fn(PoolBuffer<u32, &dyn DeviceAllocator>, &Stream);

const ENDS: [(&str, End); 4] = [
    ("recorded, dropped", |values, second| {
        values.record_stream(second).unwrap();
        drop(values);
    }),
    ("moved before, dropped", |values, _| drop(values)),
    ("freed there", |values, second| values.deallocate_on(second).unwrap()),
    ("recorded, freed on the first, from a thread", |values, second| {
        let first = values.stream().clone();
        values.record_stream(second).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || values.deallocate_on(&first).unwrap()).join().unwrap()
        });
    }),
];

/// A kernel of the second stream writes long after the handle is gone. The next owner of the block
/// is ordered after that write.
#[test]
fn a_block_is_reused_only_after_the_work_of_every_stream_of_its_handle() {
    each(|case, device, allocator| {
        let (module, streams) = (module(device), [(); 3].map(|()| device.stream().unwrap()));
        let [first, second, third] = &streams;
        let allocator: &dyn DeviceAllocator = &allocator;
        for (name, end) in ENDS {
            let len = case.max.size() / size_of::<u32>();
            let mut values = PoolBuffer::<u32, _>::zeroed(allocator, len, first).unwrap();
            if name.starts_with("moved") {
                values.move_to(second).unwrap();
            }
            second.wait(&first.record().unwrap()).unwrap();
            let (slice, address) = (values.slice(), values.address());
            launch_linger(second, &module, slice, LONG_MICROS);
            end(values, second);
            if case.is_the_driver() {
                assert!(second.is_done().unwrap(), "{case}, {name}, on {device}: its frees wait");
                continue;
            }
            // Allocate all blocks, so that this one is among them, unless a limit is lower.
            let blocks = alloc_all(case, allocator, third);
            if let Some(block) = blocks.iter().find(|(ptr, _)| ptr.0 as u64 == address) {
                assert_eq!(
                    seen_after_doubling(&module, third, slice, block),
                    2,
                    "{case}, {name}, on {device}"
                );
            } else {
                assert!(case.room != Some(BLOCKS), "{case}, {name}");
            }
            free_all(allocator, blocks, third);
        }
    });
}

/// Runs `double` on a block that this stream owns, and returns the block's first value.
fn seen_after_doubling(module: &Module, stream: &Stream, values: DeviceSlice<u32>, block: &Block) -> u32 {
    // SAFETY: one thread, and the block belongs to this stream.
    unsafe { stream.launch(module, double, &ONE, (values,)) }.unwrap();
    let mut value = [0_u32];
    memory(stream.device(), *block).read(0, &mut value).unwrap();
    value[0]
}

#[test]
fn a_move_orders_the_next_stream_after_all_previous_work() {
    each(|case, device, allocator| {
        let (module, streams) = (module(device), [(); 3].map(|()| device.stream().unwrap()));
        let [first, second, third] = &streams;
        let mut values = PoolBuffer::from_slice(&allocator, &[0_u32, 5], first).unwrap();
        launch_linger(first, &module, values.slice(), LONG_MICROS);
        values.move_to(second).unwrap();
        let two = LaunchConfig::linear(2, 2);
        // SAFETY: there is a value for each thread, and the kernel is ordered after the previous
        // one.
        unsafe { second.launch(&module, double, &two, (values.slice(),)) }.unwrap();
        assert_eq!(values.copy_to_vec().unwrap(), [2, 10], "{case} on {device}");
        // Copies through the handle wait for the work of a recorded stream.
        values.record_stream(third).unwrap();
        third.wait(&second.record().unwrap()).unwrap();
        launch_linger(third, &module, values.slice(), LONG_MICROS);
        values.write(1, &[3]).unwrap();
        assert_eq!(values.copy_to_vec().unwrap(), [1, 3], "{case} on {device}");
        drop(values);
        assert_eq!(allocator.usage().used_bytes, 0, "{case}");
    });
}

#[test]
fn streams_may_be_dropped_before_their_handles() {
    each(|case, device, allocator| {
        let (module, mut held) = (module(device), Vec::new());
        for number in 0..5_u32 {
            let (stream, other) = (device.stream().unwrap(), device.stream().unwrap());
            let values = PoolBuffer::from_slice(&allocator, &[number; 100], &stream).unwrap();
            values.record_stream(&other).unwrap();
            launch_linger(&other, &module, values.slice(), 2000);
            held.push(values);
        }
        for (number, values) in (0..).zip(&held) {
            assert_eq!(values.copy_to_vec().unwrap()[..2], [1, number], "{case} on {device}");
        }
        drop(held);
        assert_eq!(allocator.usage().used_bytes, 0, "{case}");
    });
}

/// A box that moves to another stream is ordered after the work of the first one.
#[test]
fn a_box_moves_to_another_stream_after_all_previous_work() {
    each(|case, device, allocator| {
        let (module, first, second) = (module(device), device.stream().unwrap(), device.stream().unwrap());
        let mut one = PoolBox::new(&allocator, 0_u32, &first).unwrap();
        launch_linger(&first, &module, one.slice(), LONG_MICROS);
        one.move_to(&second).unwrap();
        assert_eq!(one.stream().id(), second.id(), "{case}");
        // SAFETY: one thread, ordered after the previous kernel.
        unsafe { second.launch(&module, double, &ONE, (one.slice(),)) }.unwrap();
        assert_eq!(one.get().unwrap(), 2, "{case} on {device}");
        let other = Device::cpu().stream().unwrap();
        assert!(matches!(one.move_to(&other), Err(Error::WrongDevice { .. })), "{case}");
        one.deallocate().unwrap();
        assert_eq!(allocator.usage().used_bytes, 0, "{case}");
    });
}

#[test]
fn a_box_is_freed_on_the_stream_that_is_named() {
    each(|case, device, allocator| {
        let (first, second) = (device.stream().unwrap(), device.stream().unwrap());
        let one = PoolBox::new(&allocator, 4_u32, &first).unwrap();
        let failed = one.deallocate_on(&Device::cpu().stream().unwrap()).unwrap_err();
        assert!(matches!(failed.error(), Error::WrongDevice { .. }), "{case}");
        let one = failed.into_handle();
        assert_eq!(one.get().unwrap(), 4, "{case}");
        one.deallocate_on(&second).unwrap();
        assert_eq!(allocator.usage().used_bytes, 0, "{case}");
    });
}
