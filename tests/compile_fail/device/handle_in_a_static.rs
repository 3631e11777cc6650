//! Safe code of a kernel cannot store a handle in a static.

use std::sync::Mutex;
use warpheap_device::bump::Bump;

static KEPT: Mutex<Option<Bump>> = Mutex::new(None);

fn keep(arena: Bump) {
    *KEPT.lock().unwrap() = Some(arena);
}

fn main() {}
