//! A kernel that fails: its error is returned, and it is sticky.
//!
//! This is a separate program with one test, because a fault on a GPU destroys the context of the
//! whole process.
#![cfg(not(loom))]

#[path = "driver/kernels.rs"]
#[allow(dead_code, reason = "only some of the kernels are launched here")]
mod kernels;
#[path = "driver/support.rs"]
mod support;

use kernels::{double, fail};
use support::{devices, is_cpu, launch, module};
use warpheap::error::KernelFault;
use warpheap::{Device, Error};

#[test]
fn a_fault_comes_back_and_stays() {
    for device in devices() {
        let cpu = is_cpu(&device);
        let (module, stream) = (module(&device), device.stream().unwrap());
        let bystander = device.stream().unwrap();
        let values = device.from_slice(&[1_u32; 32]).unwrap();
        launch(&stream, &module, fail, 32, (values.slice(),)).unwrap();
        let error = stream.synchronize().unwrap_err();
        assert!(error.is_fatal(), "{error}");
        match (&error, cpu) {
            (Error::KernelFault(KernelFault::Simt { kernel, .. }), true) => assert_eq!(*kernel, "fail"),
            (Error::KernelFault(KernelFault::Cuda { .. }), false) => {}
            _ => panic!("{error}"),
        }
        assert!(stream.synchronize().unwrap_err().is_fatal(), "the second time it is forgotten");
        assert!(stream.is_done().unwrap_err().is_fatal());
        let later = launch(&stream, &module, double, 32, (values.slice(),));
        assert!(later.unwrap_err().is_fatal());
        assert!(device.synchronize().unwrap_err().is_fatal());
        assert!(values.copy_to_vec().unwrap_err().is_fatal());
        if cpu {
            after_a_fault_on_the_cpu(&device, stream, bystander);
        }
        // Dropping the remaining objects must not panic, even on a lost context.
    }
}

/// Other streams of the CPU continue, and no wait for the failed stream blocks for ever.
fn after_a_fault_on_the_cpu(device: &Device, failed: warpheap::Stream, bystander: warpheap::Stream) {
    bystander.wait(&failed.record().unwrap()).unwrap();
    bystander.synchronize().unwrap();
    drop(failed);
    device.synchronize().unwrap();
    // An error that was never reported outlives its stream.
    let unheard = device.stream().unwrap();
    let values = device.from_slice(&[1_u32; 32]).unwrap();
    let module = device.native_module().unwrap();
    launch(&unheard, &module, fail, 32, (values.slice(),)).unwrap();
    drop(unheard);
    assert!(device.synchronize().unwrap_err().is_fatal(), "the failure went with its stream");
    device.synchronize().unwrap();
    assert_eq!(device.from_slice(&[1_u8]).unwrap().copy_to_vec().unwrap(), [1]);
}
