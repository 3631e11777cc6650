//! What can be set, and kernels that were built without the feature.

use warpheap::pool::Heap;
use warpheap::{Device, Error};
use warpheap_kernels::host_calls::heap_free_many;

fn refused(builder: &warpheap::pool::HeapBuilder, words: &str) {
    let error = builder.build(&Device::cpu()).unwrap_err();
    assert!(matches!(error, Error::PoolConfig { setting: "quarantine", .. }), "{error}");
    assert!(error.to_string().contains(words), "{error}");
}

#[test]
fn wrong_settings_are_refused_by_name() {
    let heap = Heap::builder(1 << 20);
    refused(&heap.clone().quarantine(7), "set `debug`, too");
    refused(&heap.clone().debug(true).quarantine((1 << 20) + 1), "from 0 to 1048576");
    assert!(heap.debug(true).quarantine(1 << 20).build(&Device::cpu()).is_ok());
}

/// A handle is longer with the feature, and a launch looks at the lengths.
#[test]
fn kernels_without_the_feature_are_refused() {
    let ptx = |bytes: usize| {
        let params = format!(".param .align 8 .b8 a[{bytes}], .param .align 8 .b8 b[16]");
        format!(
            ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry heap_free_many({params}) {{ ret; }}\n"
        )
    };
    let device = Device::cpu();
    device.load_module(&ptx(136)).unwrap().check(heap_free_many).unwrap();
    let error = device.load_module(&ptx(128)).unwrap().check(heap_free_many).unwrap_err();
    assert!(matches!(error, Error::KernelSignature { .. }), "{error}");
    assert!(error.to_string().contains("feature `debug`"), "{error}");
}
