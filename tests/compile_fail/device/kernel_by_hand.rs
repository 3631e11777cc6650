//! `Kernel` is an unsafe trait: a launch relies on its description of the parameters.

use warpheap_device::kernel::Kernel;

#[derive(Clone, Copy)]
struct Other;

impl Kernel for Other {
    type Args = (u64,);
    const NAME: &'static str = "heap_alloc_many";
    unsafe fn run_thread(_: (u64,)) {}
}

fn main() {}
