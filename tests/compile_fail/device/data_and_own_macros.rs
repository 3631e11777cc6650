//! A program's own macros and crates, with the names of core's, switch no check off.

extern crate self as core;

pub mod mem {
    pub const fn size_of<T>() -> usize {
        9
    }
}

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
    /// None is asked for.
    unsafe fn this_one() {}
}

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
