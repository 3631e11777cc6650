//! The argument for a handle is not plain data: zeroes are not a valid value.

use warpheap::{Arg, Device};
use warpheap_device::freelist::FreeList;

fn main() {
    let _ = Device::cpu().zeroed::<Arg<FreeList>>(1);
}
