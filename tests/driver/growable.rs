//! A buffer that grows in place: sizes, contents, copies, arguments, drop.

use crate::kernels::{double, linger};
use crate::support::{devices, is_cpu, launch, module};
use warpheap::GrowableBuffer;
use warpheap::error::{Dangling, InvalidConfig, OutOfMemory};
use warpheap::simt::{Executor, Mode};
use warpheap::{Bytes, Device, Error};
use warpheap_device::kernel::DeviceSlice;

const MIB: u64 = 1 << 20;
/// Memory in use on the device. Zero for a GPU, which other tests use at the same time.
fn in_use(device: &Device) -> (u64, usize) {
    if is_cpu(device) { device.memory_in_use() } else { (0, 0) }
}

fn rounded(bytes: u64, buffer: &GrowableBuffer) -> u64 {
    bytes.next_multiple_of(buffer.granularity())
}

#[test]
fn it_grows_from_one_mebibyte_to_a_hundred_in_place() {
    for device in devices() {
        let mut buffer = GrowableBuffer::reserve(&device, 1 << 30).unwrap();
        let (address, granularity) = (buffer.address(), buffer.granularity());
        assert!(granularity.is_power_of_two() && address.is_multiple_of(granularity));
        assert_eq!((buffer.size(), buffer.reserved()), (0, rounded(1 << 30, &buffer)));

        let first = buffer.grow_to(MIB).unwrap();
        assert_eq!(first, rounded(MIB, &buffer));
        buffer.write(0, &vec![1_u32; (first / 4) as usize]).unwrap();

        let size = buffer.grow_to(100 * MIB).unwrap();
        assert_eq!((buffer.address(), size), (address, rounded(100 * MIB, &buffer)));
        buffer.write(first, &vec![2_u32; ((100 * MIB - first) / 4) as usize]).unwrap();
        let mut all = vec![0_u32; 26_214_400];
        buffer.read(0, &mut all).unwrap();
        let (ones, twos) = all.split_at((first / 4) as usize);
        assert!(ones.iter().all(|value| *value == 1) && twos.iter().all(|value| *value == 2));
    }
}

#[test]
fn beyond_the_reservation_nothing_changes() {
    for device in devices() {
        let mut buffer = GrowableBuffer::reserve(&device, 8 * MIB).unwrap();
        buffer.grow_to(1).unwrap();
        buffer.write(0, &[5_u64]).unwrap();
        let (size, before) = (buffer.size(), in_use(&device));
        for bytes in [buffer.reserved() + 1, 1 << 60, u64::MAX] {
            let error = buffer.grow_to(bytes).unwrap_err();
            assert!(matches!(&error, Error::OutOfMemory(OutOfMemory::Reservation { .. })), "{error}");
            assert!(error.to_string().contains("8.0 MiB"), "{error}");
            assert_eq!((buffer.size(), in_use(&device)), (size, before));
        }
        let mut first = [0_u64];
        buffer.read(0, &mut first).unwrap();
        assert_eq!(first, [5]);
        assert_eq!(buffer.grow_to(buffer.reserved()).unwrap(), buffer.reserved());
    }
}

/// A reservation takes no memory, so it may be larger than the memory of the device.
#[test]
fn beyond_the_device_nothing_changes() {
    for device in devices() {
        let bytes = device.info().unwrap().memory_total + (1 << 30);
        let mut buffer = GrowableBuffer::reserve(&device, bytes).unwrap();
        let before = in_use(&device);
        let error = buffer.grow_to(bytes).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory(OutOfMemory::Device { .. })), "{error}");
        assert_eq!((buffer.size(), in_use(&device)), (0, before));
        buffer.grow_to(MIB).unwrap();
        buffer.write(MIB - 8, &[7_u64]).unwrap();
        let mut last = [0_u64];
        buffer.read(MIB - 8, &mut last).unwrap();
        assert_eq!(last, [7]);
    }
}

#[test]
fn to_grow_to_less_changes_nothing_nor_does_to_shrink_to_more() {
    for device in devices() {
        let mut buffer = GrowableBuffer::reserve(&device, 64 * MIB).unwrap();
        let size = buffer.grow_to(10 * MIB).unwrap();
        for bytes in [0, 1, size - 1, size] {
            assert_eq!(buffer.grow_to(bytes).unwrap(), size);
        }
        for bytes in [size, size + 1, u64::MAX] {
            assert_eq!(buffer.shrink_to(bytes).unwrap(), size);
        }
    }
}

#[test]
fn a_shrink_frees_what_a_growth_added_as_a_whole() {
    for device in devices() {
        let mut buffer = GrowableBuffer::reserve(&device, 256 * MIB).unwrap();
        let first = buffer.grow_to(1).unwrap();
        buffer.write(0, &vec![3_u8; first as usize]).unwrap();
        let (second, third) = (buffer.grow_to(20 * MIB).unwrap(), buffer.grow_to(60 * MIB).unwrap());
        assert_eq!(buffer.shrink_to(20 * MIB + 1).unwrap(), third, "a part of the third growth is to stay");
        assert_eq!(buffer.shrink_to(20 * MIB).unwrap(), second);
        assert!(matches!(buffer.write(second, &[1_u8]), Err(Error::OutOfBounds { .. })));
        assert_eq!(buffer.shrink_to(first).unwrap(), first);
        let mut kept = vec![0_u8; first as usize];
        buffer.read(0, &mut kept).unwrap();
        assert!(kept.iter().all(|byte| *byte == 3));
        // Grow again, in one step.
        assert_eq!(buffer.grow_to(60 * MIB).unwrap(), third);
        buffer.write(third - 8, &[7_u64]).unwrap();
        assert_eq!((buffer.shrink_to(0).unwrap(), in_use(&device).0), (0, 0));
    }
}

#[test]
fn a_buffer_that_never_grows_is_a_buffer() {
    for device in devices() {
        let (_, before) = in_use(&device);
        let mut buffer = GrowableBuffer::reserve(&device, 1).unwrap();
        assert_eq!((buffer.size(), buffer.reserved()), (0, buffer.granularity()));
        assert!(buffer.address() > 0 && format!("{buffer:?}").contains("0 B at"), "{buffer:?}");
        assert_eq!(in_use(&device).1, before + usize::from(is_cpu(&device)));
        assert!(matches!(buffer.read(0, &mut [0_u8]), Err(Error::OutOfBounds { .. })));
        buffer.read::<u8>(0, &mut []).unwrap();
        assert_eq!((buffer.grow_to(0).unwrap(), buffer.shrink_to(0).unwrap()), (0, 0));
        drop(buffer);
        assert_eq!(in_use(&device).1, before);
    }
}

#[test]
fn no_addresses_and_too_many_are_rejected() {
    for device in devices() {
        for bytes in [0, u64::MAX] {
            let error = GrowableBuffer::reserve(&device, bytes).unwrap_err();
            assert!(
                matches!(error, Error::InvalidConfig(InvalidConfig::GrowableBuffer { bytes: Bytes(b) }) if b == bytes),
                "{error}"
            );
        }
        let error = GrowableBuffer::reserve(&device, 1 << 62).unwrap_err();
        assert!(
            !is_cpu(&device) || matches!(error, Error::OutOfMemory(OutOfMemory::AddressSpace { .. })),
            "{error}"
        );
    }
}

#[test]
fn the_limit_of_the_cpu_counts_mapped_memory() {
    const TOTAL: u64 = 64 * MIB;
    let device = Device::cpu_with_executor(Executor::new(Mode::Parallel { workers: 1 }), TOTAL);
    let free = || device.info().unwrap().memory_free;
    let mut buffer = GrowableBuffer::reserve(&device, 1 << 40).unwrap();
    assert_eq!((free(), buffer.reserved()), (TOTAL, 1 << 40));
    buffer.grow_to(40 * MIB).unwrap();
    assert_eq!(free(), TOTAL - 40 * MIB);
    let error = buffer.grow_to(66 * MIB).unwrap_err();
    assert!(
        matches!(error, Error::OutOfMemory(OutOfMemory::Device { free: Bytes(free), .. }) if free == TOTAL - 40 * MIB),
        "{error}"
    );
    assert_eq!((buffer.size(), free()), (40 * MIB, TOTAL - 40 * MIB));
    buffer.shrink_to(0).unwrap();
    assert_eq!(free(), TOTAL);
    buffer.grow_to(2 * MIB).unwrap();
    drop(buffer);
    assert_eq!(free(), TOTAL);
}

#[test]
fn copies_and_fills_end_where_the_memory_ends() {
    for device in devices() {
        let mut buffer = GrowableBuffer::reserve(&device, 64 * MIB).unwrap();
        let size = buffer.grow_to(4 * MIB).unwrap();
        buffer.fill_part(0, size, 0xab).unwrap();
        let mut end = [0_u32; 2];
        buffer.read(size - 8, &mut end).unwrap();
        assert_eq!(end, [0xabab_abab; 2]);
        let error = buffer.read(size - 4, &mut end).unwrap_err();
        assert!(matches!(error, Error::OutOfBounds { .. }), "{error}");
        assert!(matches!(buffer.write(size, &[0_u8]), Err(Error::OutOfBounds { .. })));
        assert!(matches!(buffer.fill_part(0, size + 1, 0), Err(Error::OutOfBounds { .. })));
        assert!(matches!(buffer.slice_at::<u32>(0, size / 4 + 1), Err(Error::OutOfBounds { .. })));
    }
}

#[test]
fn launches_reach_backed_memory_only() {
    for device in devices() {
        let (module, stream) = (module(&device), device.stream().unwrap());
        let mut buffer = GrowableBuffer::reserve(&device, 64 * MIB).unwrap();
        let launch = |values: DeviceSlice<u32>| launch(&stream, &module, double, 1 << 12, (values,));
        let first = buffer.grow_to(1).unwrap();
        let size = buffer.grow_to(6 * MIB).unwrap();
        // Two thousand values on each side of the start of the second piece.
        let at = first - 4 * 2048;
        buffer.write(at, &[21_u32; 4096]).unwrap();
        let values = buffer.slice_at::<u32>(at, 4096).unwrap();
        launch(values).unwrap();
        // The buffer may grow while the kernel runs.
        buffer.grow_to(32 * MIB).unwrap();
        let mut doubled = [0_u32; 4096];
        buffer.read(at, &mut doubled).unwrap();
        assert_eq!(doubled, [42; 4096]);

        let values = buffer.slice_at::<u32>(size, 4096).unwrap();
        launch(values).unwrap();
        assert_eq!(buffer.shrink_to(size).unwrap(), size);
        let error = launch(values).unwrap_err();
        assert!(matches!(error, Error::Dangling(Dangling::Argument { .. })), "{error}");
        assert!(error.to_string().contains("64.0 MiB) that are reserved there"), "{error}");
        drop(buffer);
        assert!(matches!(launch(values), Err(Error::Dangling(Dangling::Argument { .. }))));
    }
}

#[test]
fn its_end_and_to_shrink_wait_for_the_kernels_that_use_it() {
    for device in devices() {
        let (module, stream) = (module(&device), device.stream().unwrap());
        let mut buffer = GrowableBuffer::reserve(&device, 64 * MIB).unwrap();
        for _ in 0..2 {
            let size = buffer.grow_to(4 * MIB).unwrap();
            buffer.fill_part(0, size, 0).unwrap();
            let values = buffer.slice_at::<u32>(0, 1).unwrap();
            for _ in 0..3 {
                launch(&stream, &module, linger, 1, (values, 30_000)).unwrap();
            }
            buffer.shrink_to(0).unwrap();
            assert!(stream.is_done().unwrap(), "the memory went while kernels were in flight on {device}");
        }
        buffer.grow_to(4 * MIB).unwrap();
        let values = buffer.slice_at::<u32>(0, 1).unwrap();
        launch(&stream, &module, linger, 1, (values, 30_000)).unwrap();
        drop(buffer);
        assert!(stream.is_done().unwrap(), "the memory went while kernels were in flight on {device}");
    }
}

#[test]
fn the_device_lives_as_long_as_the_buffer() {
    let device = Device::cpu();
    assert!(device.info().unwrap().virtual_memory || !cfg!(unix));
    let mut buffer = GrowableBuffer::reserve(&device, MIB).unwrap();
    drop(device);
    buffer.grow_to(MIB).unwrap();
    buffer.write(0, &[1_u64]).unwrap();
    assert_eq!(buffer.device().backend(), warpheap::Backend::Cpu);
}
