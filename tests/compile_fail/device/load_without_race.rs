//! A plain load races with every store.

use warpheap_device::sync::AtomicU32;

fn main() {
    AtomicU32::new(0).load_unraced();
}
