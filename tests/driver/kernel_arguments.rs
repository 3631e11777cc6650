//! Kernel arguments of every type: the kernel receives the value that the host passed. Runs on the
//! CPU, and on the first GPU if there is one. `tests/device_pools` has heaps as arguments.

mod kernels;

use crate::support::devices;
use kernels::{Particle, Settings, Wide, composites, numbers, wide};
use warpheap::error::Dangling;
use warpheap::{Device, Error, LaunchConfig, Module};
use warpheap_device::kernel::{DevicePtr, DeviceSlice, Kernel, KernelArgs, Param};

/// The PTX of the module `kernels`.
const PTX: &str = include_str!("kernel_arguments/kernels.ptx");

/// Launches one thread of the kernel and returns the words that it wrote.
fn run<K: Kernel>(module: &Module, kernel: K, args: impl FnOnce(DeviceSlice<u64>) -> K::Args) -> Vec<u64> {
    let device = module.device();
    let (stream, out) = (device.stream().unwrap(), device.zeroed::<u64>(16).unwrap());
    let one = LaunchConfig::linear(1, 1);
    // SAFETY: P1 to P4: the buffer and the heaps are live until the kernel has ended, the launch
    // has one thread, and the module was compiled from these kernels. P5, P6: the kernels rely on
    // no destructor and no thread-local variable.
    unsafe { stream.launch(module, kernel, &one, args(out.slice())) }.unwrap();
    out.copy_to_vec().unwrap()
}

#[test]
fn sixteen_arguments_of_every_plain_type_arrive() {
    let args = |out| {
        (
            200,
            -2,
            60_000,
            -300,
            4_000_000_000,
            -5,
            1 << 60,
            i64::MIN,
            usize::MAX,
            -9,
            1.5,
            -2.5,
            true,
            'ß',
            [7, 8, 9],
            out,
        )
    };
    let expected = [
        200,
        -2_i64 as u64,
        60_000,
        -300_i64 as u64,
        4_000_000_000,
        -5_i64 as u64,
        1 << 60,
        1 << 63,
        u64::MAX,
        -9_i64 as u64,
        1.5_f32.to_bits().into(),
        (-2.5_f64).to_bits(),
        1,
        'ß'.into(),
        7,
        9,
    ];
    for device in devices() {
        assert_eq!(run(&device.load_module(PTX).unwrap(), numbers, args), expected, "{device}");
    }
}

#[test]
fn numbers_of_128_bits_arrive() {
    let (high, low) = (0x0123_4567_89ab_cdef_u64, 0xfedc_ba98_7654_3210_u64);
    let number = u128::from(high) << 64 | u128::from(low);
    let args = |out| (7, number, -3, 9, Wide { sum: number + 1, terms: -5 }, [i128::MIN, 1 << 64], out);
    let expected = [low, high, -3_i64 as u64, u64::MAX, low + 1, high, 0, 1 << 63, 0, 1, 7, 9, -5_i64 as u64];
    for device in devices() {
        let words = run(&device.load_module(PTX).unwrap(), wide, args);
        assert_eq!(words[..expected.len()], expected, "{device}");
    }
}

#[test]
fn tuples_and_structs_arrive() {
    let first = Particle { position: [0.0; 3], charge: -7 };
    let settings = Settings { strict: true, limit: 99, letters: ['a', 'z'], first };
    let args = |out: DeviceSlice<u64>| {
        let start = DevicePtr(out.as_ptr());
        ((3, 1 << 40), ((true, -4), [0.0, 2.0]), [(1, 5), (6, 2)], settings, (out, start))
    };
    let expected =
        [3, 1 << 40, 1, -4_i64 as u64, 2.0_f32.to_bits().into(), 6, 5, 1, 99, 'z'.into(), -7_i64 as u64];
    for device in devices() {
        let words = run(&device.load_module(PTX).unwrap(), composites, args);
        assert_eq!(words[..expected.len()], expected, "{device}");
    }
}

/// The declarations of the entry points of a module.
fn entries(ptx: &str) -> Vec<String> {
    let entries = ptx.split(".visible .entry ").skip(1).filter_map(|rest| rest.split_once(')'));
    entries.map(|(head, _)| head.split_whitespace().collect()).collect()
}

#[test]
fn the_ptx_has_the_parameters_of_the_kernels() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/");
    let required = std::env::var_os("WARPHEAP_REQUIRE_COMPILER").is_some_and(|value| value == "1");
    if !required && !std::path::Path::new(root).exists() {
        return; // A bundle for a GPU machine has the program of this test without its sources.
    }
    let to = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernel-arguments.ptx");
    let builder = warpheap_build::Builder::module(format!("{root}tests/driver/kernel_arguments/kernels.rs"))
        .device_crate(format!("{root}gpu"), ["panic-handler"])
        .target_dir(std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("../warpheap-build/modules"));
    match builder.copy_to(&to).build() {
        Ok(_) => assert_eq!(entries(&std::fs::read_to_string(to).unwrap()), entries(PTX)),
        Err(error @ warpheap_build::Error::NoCompiler(_)) => assert!(!required, "{error}"),
        Err(error) => panic!("{error}"),
    }
    assert_eq!(entries(PTX).len(), 3);
}

/// A tuple is passed as nested pairs in declaration order, independent of the compiler's layout of
/// the tuple.
#[test]
fn the_layout_of_arguments_is_their_declaration() {
    let params = <composites as Kernel>::Args::PARAMS;
    let expected = [(16, 8), (12, 4), (16, 4), (40, 8), (24, 8)].map(|(size, align)| Param { size, align });
    assert_eq!(params, expected);
    assert_eq!(<numbers as Kernel>::Args::PARAMS.len(), 16);
    let params = <wide as Kernel>::Args::PARAMS;
    let expected = [(1, 1), (16, 16), (16, 16), (4, 4), (32, 16), (32, 16), (16, 8)];
    assert_eq!(params, expected.map(|(size, align)| Param { size, align }));
}

/// A launch finds freed memory inside structs, tuples and arrays.
#[test]
fn memory_that_is_gone_is_found_inside_of_arguments() {
    let device = Device::cpu();
    let (live, gone) = (device.zeroed::<u64>(16).unwrap(), device.zeroed::<u64>(16).unwrap().slice());
    let (stream, module, one) =
        (device.stream().unwrap(), device.native_module().unwrap(), LaunchConfig::linear(1, 1));
    let settings = Settings { strict: false, limit: 0, letters: ['a'; 2], first: Particle::default() };
    let fine = ((0, 0), ((false, 0), [0.0; 2]), [(0, 0); 2], settings);
    let args = (fine.0, fine.1, fine.2, fine.3, (gone, live.ptr()));
    // SAFETY: the launch fails its check, so no kernel runs.
    let error = unsafe { stream.launch(&module, composites, &one, args) }.unwrap_err();
    assert!(matches!(error, Error::Dangling(Dangling::Argument { position: 4, .. })), "{error}");
}

#[cfg(feature = "bytemuck")]
#[test]
fn types_of_bytemuck_are_arguments_and_data() {
    use warpheap_device::kernel;
    use warpheap_device::kernel::Pod;
    kernel! {
        /// # Safety
        /// See `numbers`.
        unsafe fn sum(all: DeviceSlice<Pod<[u32; 2]>>, plus: Pod<[u32; 2]>, out: DeviceSlice<u64>) {
            // SAFETY: `all` is live, the host has written the value, and nothing else writes it.
            let first = unsafe { all.get(0) }.unwrap();
            // SAFETY: `out` is live and the launch has one thread, so no other thread accesses it.
            unsafe { out.set(0, u64::from(first.0[0] + first.0[1] + plus.0[0] + plus.0[1])) };
        }
    }
    let device = Device::cpu();
    let all = device.from_slice(&[Pod([1, 2])]).unwrap();
    assert_eq!(run(&device.native_module().unwrap(), sum, |out| (all.slice(), Pod([3, 4]), out))[0], 10);
}
