//! Each step of a growth fails once and leaves the buffer unchanged.

use super::*;
use crate::driver::Backend;
use crate::driver::fault_injection::{Call, Faults, faulty_virtual_memory};
use crate::simt::{Executor, Mode};

const MIB: u64 = 1 << 20;
const TOTAL: u64 = 64 * MIB;

/// Numbers of reservations, memory pieces and mappings that the driver holds.
fn counts(faults: &Faults) -> [usize; 3] {
    let held = faults.held();
    [Call::Reserve, Call::Create, Call::Map].map(|call| held.iter().filter(|(of, _)| *of == call).count())
}

/// A CPU device of [`TOTAL`] bytes, and the first GPU if there is one. `WARPHEAP_REQUIRE_CUDA=1`
/// requires a GPU.
fn devices() -> Vec<Device> {
    let cpu = Device::cpu_with_executor(Executor::new(Mode::Parallel { workers: 1 }), TOTAL);
    let required = std::env::var("WARPHEAP_REQUIRE_CUDA").is_ok_and(|value| value == "1");
    let gpu = Device::cuda(0).ok();
    assert!(!required || gpu.is_some(), "WARPHEAP_REQUIRE_CUDA=1, but there is no GPU");
    [cpu].into_iter().chain(gpu).collect()
}

/// Memory in use on the device; 0 for a GPU, which other tests use concurrently.
fn in_use(device: &Device) -> (u64, usize) {
    if device.backend() == Backend::Cpu { device.memory_in_use() } else { (0, 0) }
}

/// A buffer with 4 MiB of sevens, and its fault injector.
fn buffer(device: &Device) -> (GrowableBuffer, Arc<Faults>) {
    let (driver, faults) = faulty_virtual_memory(device);
    let mut buffer = GrowableBuffer::over(device, driver, 32 * MIB, None).unwrap();
    buffer.grow_to(4 * MIB).unwrap();
    buffer.fill_part(0, 4 * MIB, 7).unwrap();
    (buffer, faults)
}

fn assert_sevens(buffer: &GrowableBuffer) {
    let mut bytes = vec![0_u8; 4 << 20];
    buffer.read(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 7));
}

#[test]
fn a_step_that_fails_leaves_the_buffer_as_it_was() {
    for device in devices() {
        for step in [Call::Create, Call::Map, Call::Allow] {
            let (mut buffer, faults) = buffer(&device);
            let before = in_use(&device);
            for to in [6 * MIB, 32 * MIB] {
                faults.fail_calls(&[step], true);
                let error = buffer.grow_to(to).unwrap_err();
                assert!(error.to_string().contains(step.name()), "{error}");
                assert_eq!(counts(&faults), [1, 1, 1], "{step:?} is undone");
                assert_eq!((buffer.size(), in_use(&device)), (4 * MIB, before));
                assert!(matches!(buffer.slice_at::<u8>(4 * MIB, 1), Err(Error::OutOfBounds { .. })));
                assert_sevens(&buffer);
            }
            faults.fail_calls(&[step], false);
            assert_eq!(buffer.grow_to(8 * MIB).unwrap(), 8 * MIB, "as if no call had failed");
            buffer.write(8 * MIB - 4, &[9_u32]).unwrap();
            assert_sevens(&buffer);
            drop(buffer);
            assert_eq!(counts(&faults), [0, 0, 0]);
        }
    }
}

#[test]
fn a_first_growth_that_fails_leaves_an_empty_buffer() {
    for device in devices() {
        for step in [Call::Create, Call::Map, Call::Allow] {
            let (driver, faults) = faulty_virtual_memory(&device);
            let mut buffer = GrowableBuffer::over(&device, driver, 32 * MIB, None).unwrap();
            faults.fail_calls(&[step], true);
            buffer.grow_to(1).unwrap_err();
            assert_eq!((buffer.size(), counts(&faults)), (0, [1, 0, 0]));
            drop(buffer);
            assert_eq!(counts(&faults), [0, 0, 0]);
        }
    }
}

#[test]
fn a_failed_reservation_is_an_error() {
    for device in devices() {
        let (driver, faults) = faulty_virtual_memory(&device);
        faults.fail_calls(&[Call::Reserve], true);
        let before = in_use(&device);
        GrowableBuffer::over(&device, driver, MIB, None).unwrap_err();
        assert_eq!((counts(&faults), in_use(&device)), ([0, 0, 0], before));
    }
}

#[test]
fn memory_that_the_driver_fails_to_unmap_stays() {
    for device in devices() {
        let (mut buffer, faults) = buffer(&device);
        buffer.grow_to(8 * MIB).unwrap();
        faults.fail_calls(&[Call::Unmap], true);
        buffer.shrink_to(0).unwrap_err();
        assert_eq!((buffer.size(), counts(&faults)), (8 * MIB, [1, 2, 2]));
        assert_sevens(&buffer);
        faults.fail_calls(&[Call::Unmap], false);
        assert_eq!(buffer.shrink_to(4 * MIB).unwrap(), 4 * MIB);
        assert_sevens(&buffer);
        assert_eq!(buffer.shrink_to(0).unwrap(), 0);
        assert_eq!(counts(&faults), [1, 0, 0]);
    }
}

#[test]
fn the_limit_of_the_cpu_counts_mapped_memory() {
    let device = devices().remove(0);
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
