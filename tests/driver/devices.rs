//! Devices: enumeration, rejection of objects that belong to another device, and the stacks of
//! their threads: what a kernel needs, what it gets, and the error if that is too little.

use crate::kernels::double;
use crate::support::{devices, is_cpu, launch, module};
use warpheap::error::{Dangling, NotSupported};
use warpheap::{Device, Error, LaunchConfig, Stream};

const ONE: LaunchConfig = LaunchConfig::linear(1, 32);

/// Pairs of different devices: two CPUs, and a CPU and a GPU in both orders if there is a GPU.
fn pairs() -> Vec<(Device, Device)> {
    let cpu = Device::cpu();
    let others = devices();
    others.flat_map(|other| [(cpu.clone(), other.clone()), (other, cpu.clone())]).collect()
}

#[test]
fn handles_go_to_any_thread() {
    fn check<T: Send + Sync>() {}
    check::<Device>();
    check::<Stream>();
    check::<warpheap::Module>();
    check::<warpheap::Event>();
    check::<warpheap::DeviceBuffer<u64>>();
    check::<warpheap::DeviceMemory>();
    check::<Error>();
}

#[test]
fn a_gpu_that_is_not_there_is_no_device() {
    let error = Device::cuda(4096).unwrap_err();
    assert!(error.is_no_device(), "{error}");
    assert!(error.to_string().contains("CUDA device 4096"), "{error}");
    match Device::cuda_count() {
        Ok(count) => assert!(count < 4096),
        Err(error) => assert!(error.is_no_device() && error.to_string().contains("driver"), "{error}"),
    }
}

#[test]
fn the_same_gpu_is_the_same_device() {
    for device in devices().filter(|device| !is_cpu(device)) {
        assert_eq!(device, Device::cuda(0).unwrap());
    }
    assert_ne!(Device::cpu(), Device::cpu());
}

#[test]
fn things_of_two_devices_do_not_mix() {
    for (here, there) in pairs() {
        let stream = here.stream().unwrap();
        let foreign = there.stream().unwrap().record().unwrap();
        let wrong = |result: warpheap::Result<()>, what: &str| {
            let error = result.unwrap_err();
            assert!(matches!(error, Error::WrongDevice { .. }), "{error}");
            assert!(error.to_string().starts_with(what), "{error}");
        };
        wrong(stream.wait(&foreign), "the event");
        let own = stream.record().unwrap();
        wrong(own.elapsed(&foreign).map(|_| ()), "the earlier event");
        let values = there.zeroed::<u32>(4).unwrap();
        // SAFETY: rejected before any access.
        wrong(unsafe { stream.copy_from_host(&values, &[1]) }, "the buffer");
        // SAFETY: rejected before any access.
        wrong(unsafe { stream.fill_bytes(&values, 1) }, "the buffer");
        // SAFETY: rejected before any access.
        wrong(unsafe { stream.launch(&module(&there), double, &ONE, (values.slice(),)) }, "the module");
        let error = launch(&stream, &module(&here), double, 32, (values.slice(),)).unwrap_err();
        assert!(matches!(error, Error::Dangling(Dangling::Argument { position: 0, .. })), "{error}");
        assert!(error.to_string().contains("another device"), "{error}");
        assert_eq!(values.copy_to_vec().unwrap(), [0; 4]);
    }
}

#[test]
fn a_foreign_context_and_stream_can_be_used() {
    for owner in devices().filter(|device| !is_cpu(device)) {
        let raw = owner.stream().unwrap();
        // SAFETY: `owner` outlives everything that is made from its context here.
        let device = unsafe { Device::from_raw_context(owner.raw_context()) }.unwrap();
        assert_eq!(device.raw_context(), owner.raw_context());
        // SAFETY: `raw` outlives it.
        let stream = unsafe { Stream::from_raw(&device, raw.raw_stream()) }.unwrap();
        let values = device.from_slice(&[21_u32]).unwrap();
        launch(&stream, &module(&device), double, 32, (values.slice(),)).unwrap();
        raw.synchronize().unwrap();
        assert_eq!(values.copy_to_vec().unwrap(), [42]);
        drop(stream);
        raw.synchronize().unwrap();
    }
}

#[test]
fn devices_of_one_context_can_be_shared() {
    for owner in devices().filter(|device| !is_cpu(device)) {
        // SAFETY: `owner` outlives everything that is made from its context here.
        let shared = unsafe { Device::shared_from_raw_context(owner.raw_context()) }.unwrap();
        // SAFETY: as above.
        let own = unsafe { Device::from_raw_context(owner.raw_context()) }.unwrap();
        assert_eq!(shared.raw_context(), own.raw_context());
        assert!(shared != own);
    }
    match Device::current_raw_context() {
        // No call makes a context current for longer than it takes.
        Ok(current) => assert!(current.is_null()),
        Err(error) => assert!(error.is_no_device(), "{error}"),
    }
}

#[test]
fn the_heap_of_malloc_has_the_size_that_was_set() {
    let error = Device::cpu().set_malloc_heap_bytes(1 << 20).unwrap_err();
    assert!(matches!(error, Error::NotSupported(NotSupported::Backend { .. })), "{error}");
    let Ok(device) = Device::cuda(0) else { return };
    // The driver may round it up.
    assert!(device.set_malloc_heap_bytes(64 << 20).unwrap() >= 64 << 20);
}

#[test]
fn the_stack_of_threads_has_the_size_that_was_set() {
    let error = Device::cpu().set_stack_bytes(1 << 20).unwrap_err();
    assert!(matches!(error, Error::NotSupported(NotSupported::Backend { .. })), "{error}");
    let Ok(device) = Device::cuda(0) else { return };
    // The driver may round it up.
    assert!(device.set_stack_bytes(4 << 10).unwrap() >= 4 << 10);
    device.set_stack_bytes(u64::MAX).unwrap_err();
}

#[test]
fn the_cpu_has_no_cuda_streams() {
    // SAFETY: rejected before the null handle is used.
    let error = unsafe { Stream::from_raw(&Device::cpu(), std::ptr::null_mut()) }.unwrap_err();
    assert!(matches!(error, Error::NotSupported(NotSupported::Backend { .. })), "{error}");
}

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
