//! Items that the exported macros refer to. A crate that uses these macros may have macros, crates
//! and items with the same names as core's, and the generics of its types may name items next to
//! them. A macro therefore refers to core only through these paths, declares no items where it
//! repeats a type of the user, and takes field types from the fields.

use crate::kernel::{DeviceData, KernelArg};

pub use core::clone::Clone;
pub use core::fmt::Debug;
pub use core::marker::Copy;
pub use core::prelude::v1::derive;
pub use core::{assert, concat, mem::size_of, stringify};

/// Compiles if the field is an argument that is passed unchanged.
pub const fn argument_field<S, F: KernelArg<Abi = F>>(_: fn(&S) -> &F) {}

/// The size of the field in bytes. Compiles if the field is plain data.
pub const fn plain_field<S, F: DeviceData>(_: fn(&S) -> &F) -> usize {
    size_of::<F>()
}
