//! Settings, and kernels that were built without the feature.

use super::kernels::give_all;
use super::support::cpus;
use std::alloc::Layout;
use warpheap::device_pools::Heap;
use warpheap::error::{InvalidConfig, InvalidModule};
use warpheap::{Arg, Device, Error};

fn rejected(builder: &warpheap::device_pools::HeapBuilder, words: &str) {
    let error = builder.build(&Device::cpu()).unwrap_err();
    assert!(
        matches!(error, Error::InvalidConfig(InvalidConfig::Pool { setting: "quarantine", .. })),
        "{error}"
    );
    assert!(error.to_string().contains(words), "{error}");
}

#[test]
fn invalid_settings_are_rejected_by_name() {
    let heap = Heap::builder(1 << 20);
    rejected(&heap.clone().quarantine(7), "set `debug`, too");
    rejected(&heap.clone().debug(true).quarantine((1 << 20) + 1), "from 0 to 1048576");
    assert!(heap.debug(true).quarantine(1 << 20).build(&Device::cpu()).is_ok());
}

/// Records, canaries and the quarantine are inside the blocks, so they grow with the memory.
#[test]
fn a_debug_heap_grows_as_another_does() {
    for device in cpus() {
        let mut heap =
            Heap::builder(8 << 20).initial(2 << 20).debug(true).quarantine(16).build(&device).unwrap();
        let wanted = vec![Layout::from_size_align(3000, 1).unwrap(); 1000];
        let mut live: Vec<_> = heap.allocate_many(&wanted).unwrap().into_iter().flatten().collect();
        assert!(live.len() < 700, "{} blocks in 2 MiB", live.len());
        heap.grow_to(8 << 20).unwrap();
        assert_eq!(heap.check().unwrap(), []);
        live.extend(
            heap.allocate_many(&wanted).unwrap().into_iter().map(|block| block.expect("there is room")),
        );
        let leaks = heap.leaks(0).unwrap();
        assert_eq!((leaks.count, leaks.bytes), (live.len() as u64, live.len() as u64 * 3000));
        assert_eq!(heap.check().unwrap(), []);
        // SAFETY: no kernel uses them.
        unsafe { heap.deallocate_many(&live) }.unwrap();
        assert_eq!((heap.leaks(0).unwrap().count, heap.check().unwrap()), (0, vec![]));
        assert_eq!(heap.stats().unwrap().quarantined_blocks, 16);
    }
}

/// A handle is longer with the feature, and a launch compares the lengths.
#[test]
fn kernels_without_the_feature_are_rejected() {
    let ptx = |bytes: usize| {
        let params = format!(".param .align 8 .b8 a[{bytes}], .param .align 8 .b8 b[16]");
        format!(
            ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry give_all({params}) {{ ret; }}\n"
        )
    };
    let device = Device::cpu();
    let handle = size_of::<Arg<warpheap_device::heap::Heap>>();
    device.load_module(&ptx(handle)).unwrap().check(give_all).unwrap();
    let error = device.load_module(&ptx(handle - 8)).unwrap().check(give_all).unwrap_err();
    assert!(matches!(error, Error::InvalidModule(InvalidModule::KernelSignature { .. })), "{error}");
    assert!(error.to_string().contains("feature `debug`"), "{error}");
}

/// Cargo tells the build script of the library which features `warpheap-device` has in the program,
/// regardless of the crate that requests them.
#[test]
fn the_librarys_own_kernels_have_the_feature() {
    let handle = format!("heap_alloc_many_param_0[{}]", size_of::<Arg<warpheap_device::heap::Heap>>());
    for image in warpheap::build_info::images().unwrap_or_default() {
        assert!(image.ptx.contains(&handle), "{} has no {handle}", image.arch);
    }
}
