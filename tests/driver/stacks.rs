//! Stacks: what a kernel needs, what it gets, and the error if that is too little.

use crate::kernels::double;
use crate::support::{devices, is_cpu, launch};
use warpheap::{Device, Error};

/// A kernel with the parameters of `double`: each value `n` becomes the sum of the numbers up to
/// `n`, by recursion. Each call has 2000 bytes on the stack, and reads what it wrote there.
const RECURSIVE: &str = include_str!("recursion.ptx");

/// Runs the kernel with 4096 threads. Each thread checks that its own frames stayed as they were.
fn run(device: &Device, depth: u32) -> Result<(), Error> {
    let module = device.load_module(RECURSIVE)?;
    let attributes = module.attributes(double)?;
    if !is_cpu(device) {
        assert_eq!((attributes.stack_bytes, attributes.has_open_stack), (2000, true));
    }
    let depths: Vec<u32> = (0..4096).map(|i| depth - i % 2).collect();
    let (stream, values) = (device.stream()?, device.from_slice(&depths)?);
    launch(&stream, &module, double, 4096, (values.slice(),))?;
    stream.synchronize()?;
    let expected =
        depths.iter().map(|&depth| if is_cpu(device) { 2 * depth } else { depth * (depth + 1) / 2 });
    assert!(values.copy_to_vec()?.into_iter().eq(expected));
    Ok(())
}

#[test]
fn recursion_has_a_stack_without_a_setting_and_too_small_a_stack_is_an_error() {
    for device in devices() {
        run(&device, 7).unwrap();
        if is_cpu(&device) {
            continue;
        }
        device.set_stack_bytes(1 << 10).unwrap();
        let error = run(&device, 1).unwrap_err();
        assert!(matches!(error, Error::InvalidLaunch { kernel: "double", .. }), "{error}");
        let message = error.to_string();
        assert!(message.contains("at least 2000 B (2.0 KiB) of stack"), "{message}");
        assert!(message.contains("a thread has 1024 B (1.0 KiB)"), "{message}");
        device.set_stack_bytes(64 << 10).unwrap();
        run(&device, 25).unwrap();
    }
}
