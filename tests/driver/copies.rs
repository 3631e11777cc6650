//! Copies to the device and back preserve the data and are bounds-checked.

use crate::kernels::{double, fill};
use crate::support::{devices, launch, module};
use std::sync::atomic::{AtomicBool, Ordering};
use warpheap::{Backend, Bytes, DeviceData, Error};

#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
struct Pair {
    key: u64,
    value: [f32; 2],
}

// SAFETY: `repr(C)`, made of numbers only, without padding.
unsafe impl DeviceData for Pair {}

#[test]
fn every_type_of_plain_data_comes_back() {
    for device in devices() {
        let pairs: Vec<_> = (0..1000).map(|i| Pair { key: i, value: [i as f32, -1.5] }).collect();
        assert_eq!(device.from_slice(&pairs).unwrap().copy_to_vec().unwrap(), pairs);
        let bytes: Vec<u8> = (0..=255).cycle().take(100_003).collect();
        assert_eq!(device.from_slice(&bytes).unwrap().copy_to_vec().unwrap(), bytes);
        let wide = [u128::MAX, 1, 0];
        assert_eq!(device.from_slice(&wide).unwrap().copy_to_vec().unwrap(), wide);
    }
}

#[test]
fn an_empty_buffer_is_a_buffer() {
    for device in devices() {
        let mut empty = device.from_slice::<u64>(&[]).unwrap();
        assert_eq!((empty.len(), empty.bytes(), empty.is_empty()), (0, 0, true));
        empty.fill_bytes(7).unwrap();
        empty.fill(7).unwrap();
        empty.copy_from_slice(&[]).unwrap();
        assert_eq!(empty.copy_to_vec().unwrap(), [0_u64; 0]);
        // A kernel receives it as an empty slice.
        let stream = device.stream().unwrap();
        let empty = device.zeroed::<u32>(0).unwrap();
        launch(&stream, &module(&device), double, 1, (empty.slice(),)).unwrap();
        stream.synchronize().unwrap();
    }
}

#[test]
fn fills_reach_every_value_and_no_further() {
    for device in devices() {
        let mut memory = device.zeroed_memory(64, 256).unwrap();
        memory.write(16, &[0x0102_0304_u32; 4]).unwrap();
        let mut all = [1_u32; 16];
        memory.read(0, &mut all).unwrap();
        let expected: Vec<u32> = (0..16).map(|i| if (4..8).contains(&i) { 0x0102_0304 } else { 0 }).collect();
        assert_eq!(all, *expected);

        let mut buffer = device.alloc_uninit::<u32>(3 << 18).unwrap();
        buffer.fill(0xdead_beef).unwrap();
        assert!(buffer.copy_to_vec().unwrap().iter().all(|v| *v == 0xdead_beef));
        buffer.fill_bytes(0x11).unwrap();
        assert!(buffer.copy_to_vec().unwrap().iter().all(|v| *v == 0x1111_1111));
    }
}

#[test]
fn zeroed_memory_is_zero_also_when_it_is_used_again() {
    for device in devices() {
        for _ in 0..3 {
            let mut buffer = device.zeroed::<u8>(10_000).unwrap();
            assert!(buffer.copy_to_vec().unwrap().iter().all(|byte| *byte == 0));
            buffer.fill_bytes(0xff).unwrap();
        }
    }
}

#[test]
fn copies_that_do_not_fit_are_rejected() {
    for device in devices() {
        let mut buffer = device.zeroed::<u32>(10).unwrap();
        for len in [0, 9, 11] {
            let error = buffer.copy_from_slice(&vec![1; len]).unwrap_err();
            assert!(matches!(error, Error::OutOfBounds { size: Bytes(40), .. }), "{error}");
        }
        let mut memory = buffer.into_memory();
        assert!(matches!(memory.write(37, &[0_u32]), Err(Error::OutOfBounds { .. })));
        assert!(matches!(memory.write(u64::MAX, &[0_u32]), Err(Error::OutOfBounds { .. })));
        assert!(matches!(memory.read(40, &mut [0_u8]), Err(Error::OutOfBounds { .. })));
        memory.write(40, &[0_u32; 0]).unwrap();
        let mut all = [1_u32; 10];
        memory.read(0, &mut all).unwrap();
        assert_eq!(all, [0; 10], "a rejected copy wrote something");
    }
}

#[test]
fn a_stream_copies_in_order_with_its_kernels() {
    for device in devices() {
        let (module, stream) = (module(&device), device.stream().unwrap());
        let input: Vec<u32> = (0..5000).collect();
        let mut output = vec![0; 5000];
        let first = device.alloc_uninit::<u32>(5000).unwrap();
        let second = device.alloc_uninit::<u32>(6000).unwrap();
        // SAFETY: source and destination live until the stream is synchronised, and nothing else
        // accesses them.
        unsafe { stream.fill_bytes(&second, 0xff) }.unwrap();
        // SAFETY: both live until the stream is synchronised, and nothing else accesses them.
        unsafe { stream.copy_from_host(&first, &input) }.unwrap();
        launch(&stream, &module, double, 5000, (first.slice(),)).unwrap();
        // SAFETY: both live until the stream is synchronised, and only this stream accesses them.
        unsafe { stream.copy(&second, &first) }.unwrap();
        // SAFETY: both live until the stream is synchronised, and nothing else accesses them.
        unsafe { stream.copy_to_host(&mut output, &second) }.unwrap();
        stream.synchronize().unwrap();
        assert!(output.iter().zip(&input).all(|(out, v)| *out == 2 * v));
        assert_eq!(second.copy_to_vec().unwrap()[5000..], [u32::MAX; 1000]);
        // SAFETY: rejected before any access.
        let error = unsafe { stream.copy(&first, &second) }.unwrap_err();
        assert!(matches!(error, Error::OutOfBounds { .. }), "{error}");
    }
}

/// Another thread keeps launching kernels. On a GPU the copy may see a kernel half done, but no
/// value is torn.
#[test]
fn the_host_copies_beside_launches_of_another_thread() {
    const VALUES: u32 = 1 << 15;
    for device in devices() {
        let (module, stream) = (module(&device), device.stream().unwrap());
        let values = device.zeroed::<u32>(VALUES as usize).unwrap();
        let (slice, is_done) = (values.slice(), AtomicBool::new(false));
        let last = if device.info().unwrap().replays { 4 } else { 60 };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for value in 1..=last {
                    launch(&stream, &module, fill, VALUES, (slice, value)).unwrap();
                    stream.synchronize().unwrap();
                }
                is_done.store(true, Ordering::Relaxed);
            });
            while !is_done.load(Ordering::Relaxed) {
                let copy = values.copy_to_vec().unwrap();
                assert!(copy.iter().all(|value| *value <= last));
                let is_whole = copy.iter().all(|value| *value == copy[0]);
                assert!(is_whole || device.backend() != Backend::Cpu, "a copy of a kernel half done");
            }
        });
        assert!(values.copy_to_vec().unwrap().iter().all(|value| *value == last));
    }
}
