//! Which kernels for a GPU contain the panic handler. A kernel that cannot panic does not reach it,
//! so the handler costs it no registers. The other kernels are checked by `ptx_resources`.

use warpheap::KernelImage;

/// Kernels that cannot panic. The slow path of a heap's allocation divides, so kernels that
/// allocate from one are not among them.
const CANNOT_PANIC: [&str; 10] = [
    "bench_free_floor",
    "bench_freelist_alloc",
    "bench_freelist_churn",
    "bench_freelist_free",
    "bench_heap_free",
    "bench_heap_free_sparse",
    "bench_spin",
    "free_all_heap",
    "heap_free_many",
    "self_test",
];

/// Kernels that check an index or divide.
const CAN_PANIC: [&str; 3] = ["demo_check", "demo_index", "collect_vec"];

/// Whether `kernel`, or a function that it can reach, reads the variable of the panic handler.
fn can_panic(image: &KernelImage, kernel: &'static str) -> bool {
    image.ptx_of(&[kernel]).unwrap().contains("[warpheap_panics")
}

#[test]
fn kernels_that_cannot_panic_do_not_contain_the_handler() {
    let images = [warpheap::build_info::images(), warpheap_harness::build_info::images()];
    let mut seen = 0;
    for image in images.into_iter().flat_map(|images| images.unwrap_or_default()) {
        assert!(image.ptx.contains(" warpheap_panics["), "the host finds the variable in each module");
        let kernels: Vec<_> = warpheap_build::entries(image.ptx).collect();
        let listed = CANNOT_PANIC.map(|kernel| (kernel, false)).into_iter();
        for (kernel, can) in listed.chain(CAN_PANIC.map(|kernel| (kernel, true))) {
            if kernels.contains(&kernel) {
                assert_eq!(can_panic(image, kernel), can, "{kernel} for {}", image.arch);
                seen += 1;
            }
        }
    }
    assert!([0, 2 * (CANNOT_PANIC.len() + CAN_PANIC.len())].contains(&seen), "{seen} of the kernels exist");
}
