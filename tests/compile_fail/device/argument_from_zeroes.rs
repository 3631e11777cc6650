//! Neither is what stands for one.

use warpheap::{Arg, Device};
use warpheap_device::freelist::FreeList;

fn main() {
    let _ = Device::cpu().zeroed::<Arg<FreeList>>(1);
}
