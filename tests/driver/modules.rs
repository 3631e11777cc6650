//! Modules: the PTX must match the kernels that the program was compiled with, and cubins the PTX.
//! The cubins here have no code, so the driver accepts none. `tests/language` loads real ones.

use crate::kernels::{append, double, sum};
use crate::support::{PTX, devices, is_cpu, launch, module};
use warpheap::error::{InvalidModule, NotSupported};
use warpheap::{Device, Error, kernel_names};
use warpheap_ptx::with_trailer;

/// PTX with different parameters of the kernel `double`.
const STALE: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .entry double(.param .u64 double_param_0) { ret; }
.visible .entry append(.param .align 8 .b8 append_param_0[16], .param .u64 append_param_1) { ret; }
";

#[test]
fn the_ptx_of_these_kernels_passes() {
    for device in devices() {
        let module = module(&device);
        module.check(double).unwrap();
        module.check(append).unwrap();
        module.check(sum).unwrap();
        let names: Vec<_> = module.kernels().collect();
        assert_eq!(names, ["append", "double", "fail", "fill", "linger", "raise", "sum", "wait"]);
    }
}

#[test]
fn stale_ptx_is_named_with_both_signatures() {
    for device in devices() {
        let module = device.load_module(STALE).unwrap();
        let error = module.check(double).unwrap_err().to_string();
        assert!(error.contains("`double` takes 1 parameter (16 B aligned to 8) in the program"), "{error}");
        assert!(error.contains("1 parameter (8 B aligned to 8) in the PTX"), "{error}");
        assert!(error.contains("rebuild"), "{error}");
        let error = module.check(append).unwrap_err();
        assert!(
            matches!(error, Error::InvalidModule(InvalidModule::KernelSignature { kernel: "append", .. })),
            "{error}"
        );
        let error = module.check(sum).unwrap_err();
        assert!(
            matches!(error, Error::InvalidModule(InvalidModule::UnknownKernel { kernel: "sum", .. })),
            "{error}"
        );
        assert!(error.to_string().contains("append, double"), "{error}");
    }
}

#[test]
fn a_gpu_does_not_launch_stale_ptx_and_the_cpu_has_none() {
    for device in devices() {
        let module = device.load_module(STALE).unwrap();
        let (stream, values) = (device.stream().unwrap(), device.from_slice(&[1_u32]).unwrap());
        let launched = launch(&stream, &module, double, 1, (values.slice(),));
        stream.synchronize().unwrap();
        match is_cpu(&device) {
            true => assert_eq!((launched.is_ok(), values.copy_to_vec().unwrap()), (true, vec![2])),
            false => {
                assert!(matches!(launched, Err(Error::InvalidModule(InvalidModule::KernelSignature { .. }))))
            }
        }
    }
}

#[test]
fn kernels_without_ptx_are_for_the_cpu() {
    for device in devices() {
        match device.native_module() {
            Ok(module) => {
                assert!(is_cpu(&device));
                module.check(double).unwrap();
                assert_eq!(module.kernels().count(), 0);
            }
            Err(error) => {
                assert!(!is_cpu(&device));
                assert!(matches!(error, Error::NotSupported(NotSupported::Backend { .. })), "{error}");
            }
        }
    }
}

#[test]
fn a_module_of_some_kernels_has_and_launches_those() {
    for device in devices() {
        let module = device.load_kernels(PTX, &kernel_names![double, append]).unwrap();
        assert_eq!(module.kernels().collect::<Vec<_>>(), ["append", "double"]);
        assert!(module.attributes(append).is_ok());
        let (stream, values) = (device.stream().unwrap(), device.from_slice(&[1_u32]).unwrap());
        let sum_of = device.zeroed::<u64>(1).unwrap();
        launch(&stream, &module, double, 1, (values.slice(),)).unwrap();
        let error = launch(&stream, &module, sum, 1, (sum_of.slice(), 1, 2, 3, 4, 5)).unwrap_err();
        assert!(
            matches!(&error, Error::InvalidModule(InvalidModule::UnknownKernel { kernel: "sum", known }) if known.contains("double")),
            "{error}"
        );
        assert!(module.check(sum).is_err() && module.attributes(sum).is_err());
        assert_eq!(values.copy_to_vec().unwrap(), [2]);
        let error = device.load_kernels(PTX, &["double", "dbl"]).unwrap_err();
        assert!(
            matches!(error, Error::InvalidModule(InvalidModule::UnknownKernel { kernel: "dbl", .. })),
            "{error}"
        );
    }
}

#[test]
fn the_programs_own_functions_can_be_named_too() {
    let module = Device::cpu().native_kernels(&kernel_names![double]).unwrap();
    module.check(double).unwrap();
    assert!(module.attributes(double).is_ok());
    for error in [module.check(sum).unwrap_err(), module.attributes(sum).unwrap_err()] {
        assert!(error.to_string().contains("no kernel `sum` (it has double)"), "{error}");
    }
}

#[test]
fn attributes_tell_what_the_compiler_made() {
    for device in devices() {
        let attributes = module(&device).attributes(sum).unwrap();
        assert!((32..=1024).contains(&attributes.max_threads_per_block), "{attributes:?}");
        if !is_cpu(&device) {
            assert!(attributes.registers > 0 && attributes.local_bytes == 0, "{attributes:?}");
            assert!(attributes.ptx_version == 70 && attributes.binary_version >= 70, "{attributes:?}");
        }
    }
}

#[test]
fn broken_ptx_comes_back_with_the_compilers_log() {
    let gpus = || devices().filter(|device| !is_cpu(device));
    for device in gpus() {
        let broken = PTX.replace("setp.le.u64", "setp.le.u65");
        let error = device.load_module(&broken).unwrap_err();
        let Error::Jit { log, .. } = &error else { panic!("{error}") };
        assert!(log.contains("error") && log.contains("line"), "no compiler's log: {log:?}");
    }
    for device in gpus() {
        let future = PTX.replace(".target sm_70", ".target sm_999");
        assert!(matches!(device.load_module(&future), Err(Error::Jit { .. })));
        assert!(matches!(device.load_module("\0"), Err(Error::Jit { .. })));
    }
    // The CPU compiles nothing, so any text loads.
    assert!(Device::cpu().load_module("not PTX").is_ok());
}

/// A cubin of `ptx` without code: the header of an ELF for a GPU, which has no sections.
fn hollow(ptx: &str, arch: &str) -> Vec<u8> {
    let header = [&b"\x7fELF\x02\x01\x01"[..], &[0; 11], &190_u16.to_le_bytes(), &[0; 44]].concat();
    with_trailer(header, ptx, arch)
}

#[test]
fn the_driver_compiles_the_ptx_if_it_accepts_no_cubin() {
    for device in devices() {
        // Architectures of every GPU, so that one of them is for this one.
        let all = ["sm_70", "sm_75", "sm_80", "sm_90", "sm_100", "sm_110", "sm_120"];
        let cubins = all.map(|arch| hollow(PTX, arch));
        let cubins: Vec<&[u8]> = cubins.iter().map(Vec::as_slice).collect();
        let empty: &[&[u8]] = &[&[]];
        for cubins in [&[], empty, &cubins[..]] {
            let module = device.load_module_with_cubins(PTX, cubins).unwrap();
            assert_eq!(module.cubin_arch(), None);
            module.check(double).unwrap();
            let (stream, values) = (device.stream().unwrap(), device.from_slice(&[1_u32, 2]).unwrap());
            launch(&stream, &module, double, 2, (values.slice(),)).unwrap();
            stream.synchronize().unwrap();
            assert_eq!(values.copy_to_vec().unwrap(), [2, 4]);
        }
    }
}

#[test]
fn a_cubin_of_other_ptx_is_an_error() {
    let other = hollow(&PTX.replace("double", "treble"), "sm_70");
    for device in devices() {
        let load = |cubin: &[u8]| device.load_module_with_cubins(PTX, &[&[], cubin]).map(drop);
        let (of_other, broken) = (load(&other), load(&other[..other.len() - 1]));
        assert!(matches!(of_other, Err(Error::InvalidModule(InvalidModule::CubinOfOtherPtx { .. }))));
        assert!(matches!(broken, Err(Error::InvalidModule(InvalidModule::NoCubin { position: 1 }))));
    }
}
