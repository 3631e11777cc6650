//! Objects may be dropped in any order: work in flight keeps what it needs.

use crate::kernels::{double, linger};
use crate::support::{devices, launch, module};
use warpheap::Device;

#[test]
fn dropping_a_buffer_waits_for_the_kernels_that_use_it() {
    for device in devices() {
        let (module, stream) = (module(&device), device.stream().unwrap());
        let values = device.from_slice(&[0_u32]).unwrap();
        for _ in 0..3 {
            launch(&stream, &module, linger, 1, (values.slice(), 30_000)).unwrap();
        }
        drop(values);
        assert!(stream.is_done().unwrap(), "the memory went while kernels were in flight on {device}");
    }
}

#[test]
fn dropping_a_buffer_waits_for_a_stream_that_is_gone() {
    let device = Device::cpu();
    let module = device.native_module().unwrap();
    let (values, witness) = (device.from_slice(&[0_u32]).unwrap(), device.from_slice(&[0_u32]).unwrap());
    let stream = device.stream().unwrap();
    launch(&stream, &module, linger, 1, (values.slice(), 30_000)).unwrap();
    launch(&stream, &module, linger, 1, (witness.slice(), 1)).unwrap();
    let event = stream.record().unwrap();
    drop(stream);
    drop(values);
    assert!(event.is_done().unwrap());
}

#[test]
fn handles_keep_their_device() {
    for device in devices() {
        let module = module(&device);
        let stream = device.stream().unwrap();
        let values = device.from_slice(&[5_u32; 64]).unwrap();
        drop(device);
        launch(&stream, &module, double, 64, (values.slice(),)).unwrap();
        drop(module);
        let event = stream.record().unwrap();
        drop(stream);
        event.synchronize().unwrap();
        assert_eq!(values.copy_to_vec().unwrap(), [10; 64]);
        drop(values);
        assert!(event.is_done().unwrap());
    }
}

#[test]
fn devices_come_and_go() {
    for _ in 0..50 {
        let device = Device::cpu();
        let stream = device.default_stream().unwrap();
        let values = device.from_slice(&[1_u32; 32]).unwrap();
        let module = device.native_module().unwrap();
        launch(&stream, &module, double, 32, (values.slice(),)).unwrap();
        assert_eq!(values.copy_to_vec().unwrap(), [2; 32]);
    }
}
