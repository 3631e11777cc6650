//! Safe code can move a word into local memory, where atomics are undefined on a GPU.

use warpheap_device::sync::AtomicU32;

fn main() {
    drop(AtomicU32::in_global(0));
}
