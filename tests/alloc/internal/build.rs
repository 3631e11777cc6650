//! Makes kernels of the tests in the sources of alloc.

fn main() -> Result<(), warpheap_alloc_transform::Error> {
    warpheap_alloc_transform::build_script(&warpheap_alloc_transform::INTERNAL)
}
