//! A launch trusts what a kernel says of its parameters.

use warpheap_device::kernel::Kernel;

#[derive(Clone, Copy)]
struct Other;

impl Kernel for Other {
    type Args = (u64,);
    const NAME: &'static str = "heap_alloc_many";
    unsafe fn run_thread(_: (u64,)) {}
}

fn main() {}
