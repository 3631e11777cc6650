//! A launch checks its grid, and checks that its arguments name live memory.

use crate::kernels::{double, sum};
use crate::support::{devices, module};
use warpheap::error::Dangling;
use warpheap::{Bytes, Device, DeviceMemory, Error, LaunchConfig};
use warpheap_device::kernel::DeviceSlice;

const ONE: LaunchConfig = LaunchConfig::linear(1, 32);

/// Tries to launch `double` on `values`.
fn launch(device: &Device, values: DeviceSlice<u32>, config: &LaunchConfig) -> warpheap::Result<()> {
    let stream = device.stream()?;
    // SAFETY: either the memory is live and nothing else accesses it, or the launch is rejected.
    unsafe { stream.launch(&module(device), double, config, (values,)) }?;
    stream.synchronize()
}

#[test]
fn a_freed_buffer_is_rejected() {
    for device in devices() {
        let values = device.zeroed::<u32>(100).unwrap();
        let (slice, address) = (values.slice(), values.address());
        launch(&device, slice, &ONE).unwrap();
        drop(values);
        let error = launch(&device, slice, &ONE).unwrap_err();
        let Error::Dangling(Dangling::Argument { kernel, position, address: found, bytes, .. }) = &error
        else {
            panic!("{error}")
        };
        assert_eq!((*kernel, *position, *found, *bytes), ("double", 0, address, Bytes(400)));
    }
}

#[test]
fn a_slice_that_reaches_too_far_is_rejected_with_the_nearest_allocation() {
    for device in devices() {
        let values = device.zeroed::<u32>(100).unwrap();
        // SAFETY: never read: the launch is rejected.
        let long = unsafe { DeviceSlice::from_raw_parts(values.ptr().0, 101) };
        let error = launch(&device, long, &ONE).unwrap_err();
        assert!(matches!(error, Error::Dangling(Dangling::Argument { .. })), "{error}");
        let nearest = format!("400 B at {:#x}", values.address());
        assert!(error.to_string().contains(&nearest), "{error} does not name {nearest}");
    }
}

/// The length in bytes, 2^64, does not wrap to 0.
#[test]
fn a_slice_longer_than_all_addresses_is_rejected() {
    for device in devices() {
        let values = device.zeroed::<u32>(4).unwrap();
        // SAFETY: never read: the launch is rejected.
        let long = unsafe { DeviceSlice::from_raw_parts(values.ptr().0, 1 << 62) };
        let error = launch(&device, long, &ONE).unwrap_err();
        assert!(matches!(error, Error::Dangling(Dangling::Argument { .. })), "{error}");
    }
}

#[test]
fn parts_of_an_allocation_pass() {
    for device in devices() {
        let memory = device.zeroed_memory(4096, 256).unwrap();
        launch(&device, memory.slice_at(4092, 1).unwrap(), &ONE).unwrap();
        launch(&device, memory.slice_at(4096, 0).unwrap(), &ONE).unwrap();
    }
}

#[test]
fn foreign_memory_passes_once_it_is_registered() {
    for device in devices() {
        let owner = device.zeroed::<u32>(8).unwrap();
        // A second device on which the memory is not registered: a new one on the CPU, the same
        // context on a GPU.
        let raw = device.raw_context();
        let other = match raw.is_null() {
            true => Device::cpu(),
            // SAFETY: `device` outlives it.
            false => unsafe { Device::from_raw_context(raw) }.unwrap(),
        };
        assert!(matches!(
            launch(&other, owner.slice(), &ONE),
            Err(Error::Dangling(Dangling::Argument { .. }))
        ));
        // SAFETY: the memory stays live, and kernels of both devices can access it.
        let named = unsafe { DeviceMemory::from_raw(&other, owner.address(), owner.bytes()) };
        launch(&other, owner.slice(), &ONE).unwrap();
        drop(named);
        assert!(matches!(
            launch(&other, owner.slice(), &ONE),
            Err(Error::Dangling(Dangling::Argument { .. }))
        ));
        assert_eq!(owner.copy_to_vec().unwrap(), [0; 8], "naming memory does not own it");
    }
}

#[test]
fn a_grid_that_cannot_be_is_rejected() {
    for device in devices() {
        let values = device.zeroed::<u32>(8).unwrap();
        let max = device.info().unwrap().max_threads_per_block;
        let rejected = |grid, block, shared_bytes| {
            let config = LaunchConfig { grid, block, shared_bytes };
            let error = launch(&device, values.slice(), &config).unwrap_err();
            assert!(matches!(error, Error::InvalidLaunch { kernel: "double", .. }), "{error}");
        };
        rejected([1, 0, 1], [32, 1, 1], 0);
        rejected([1; 3], [32, 1, 0], 0);
        rejected([1; 3], [max + 1, 1, 1], 0);
        rejected([1; 3], [max, 2, 1], 0);
        rejected([1; 3], [1, 1, 65], 0);
        rejected([1, 65_536, 1], [32, 1, 1], 0);
        rejected([1; 3], [32, 1, 1], u32::MAX);
        rejected([0; 3], [32, 1, 1], 0);
        assert_eq!(values.copy_to_vec().unwrap(), [0; 8]);
    }
}

#[test]
fn every_size_of_argument_arrives() {
    for device in devices() {
        let out = device.zeroed::<u64>(1).unwrap();
        let stream = device.stream().unwrap();
        let args = (out.slice(), 200_u8, 60_000_u16, 4_000_000_000_u32, 1_u64 << 50, -7_i8);
        // SAFETY: one thread, and the buffer lives until the stream is synchronised.
        unsafe { stream.launch(&module(&device), sum, &LaunchConfig::linear(1, 1), args) }.unwrap();
        stream.synchronize().unwrap();
        assert_eq!(out.copy_to_vec().unwrap(), [200 + 60_000 + 4_000_000_000 + (1 << 50) - 7]);
    }
}
