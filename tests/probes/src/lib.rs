//! One kernel per primitive of the facade, named after it: `AtomicU64__add_acquire`,
//! `sync__fence_acquire`, `warp__activemask`. Each calls that primitive once and stores the result,
//! so that `tests/ptx/opcodes.rs` can read from the PTX what a primitive compiles to.
#![no_std]
#![cfg(target_arch = "nvptx64")]

mod collectives;
mod shared;
mod words;

/// Declares the kernel `$group__$name`.
#[macro_export]
macro_rules! probe {
    ($group:ident $name:ident($($arg:ident: $ty:ty),*) $body:block) => {
        const _: () = {
            #[unsafe(export_name = concat!(stringify!($group), "__", stringify!($name)))]
            unsafe extern "ptx-kernel" fn probe($($arg: $ty),*) $body
        };
    };
}
