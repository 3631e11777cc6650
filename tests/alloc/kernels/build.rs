//! Makes kernels of the tests of alloc's public interface.

fn main() -> Result<(), warpheap_alloc_transform::Error> {
    warpheap_alloc_transform::build_script(&warpheap_alloc_transform::PUBLIC)
}
