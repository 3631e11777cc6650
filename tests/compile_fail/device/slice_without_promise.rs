//! Any address is a valid slice, and other threads may access its memory.

use warpheap_device::kernel::DeviceSlice;

pub fn first(values: DeviceSlice<u32>) -> Option<u32> {
    values.set(0, 1);
    values.get(0)
}

fn main() {}
