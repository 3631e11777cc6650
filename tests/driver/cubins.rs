//! Modules with cubins: which are loaded, and which are errors. The cubins here have no code, so
//! the driver accepts none. `tests/language` loads real ones.

use crate::kernels::double;
use crate::support::{PTX, devices, launch};
use warpheap::Error;
use warpheap::error::InvalidModule;
use warpheap_ptx::with_trailer;

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
