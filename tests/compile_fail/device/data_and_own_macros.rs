//! Macros and crates of the program with the names of those of `core` do not disable any check.

extern crate self as core;

pub mod mem {
    pub const fn size_of<T>() -> usize {
        9
    }
}

// The derive of `Hash` under the names of other derives.
#[allow(unused_imports)]
use std::hash::{Hash as Clone, Hash as Copy, Hash as Debug};

macro_rules! assert {
    ($($checks:tt)*) => {};
}
macro_rules! concat {
    ($($words:tt)*) => {
        ""
    };
}
macro_rules! stringify {
    ($($words:tt)*) => {
        "another"
    };
}

warpheap_device::device_data! {
    struct Padded {
        small: u8,
        large: u64,
    }

    struct Answer {
        yes: bool,
    }
}

warpheap_device::kernel! {
    /// # Safety
    /// No requirements.
    unsafe fn this_one() {}
}

warpheap_device::stress_kernels! {
    warpheap_device::freelist::FreeList {
        stress: stress_it,
        exhaust: exhaust_it,
        free_all: give_it_back,
        exchange: exchange_it,
        free_twice: free_it_twice,
    }
}
warpheap_device::stress_kernels!(checks);

const _: () = {
    let name = <this_one as warpheap_device::kernel::Kernel>::NAME.as_bytes();
    std::assert!(name.len() == "this_one".len() && name[0] == b't');
};

fn main() {
    let _ = mem::size_of::<u8>();
    concat!();
    stringify!();
    assert!();
}
