//! A handle is not plain data: zeroes are not a valid handle.

use core::alloc::Layout;
use warpheap::Device;

fn main() {
    let handles = Device::cpu().zeroed::<warpheap_device::heap::Heap>(1).unwrap();
    handles.copy_to_vec().unwrap()[0].alloc(Layout::new::<u64>());
}
