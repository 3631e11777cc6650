//! Items that the exported macros refer to. A crate that uses these macros may define macros,
//! crates and items with the names of core's, and an item that a macro declares may shadow a name
//! in a type that the user wrote. A macro therefore refers to core only through these paths,
//! declares no items where it repeats a user's type, and infers field types from the fields.

use crate::kernel::{DeviceData, KernelArg};

pub use core::clone::Clone;
pub use core::fmt::Debug;
pub use core::marker::Copy;
pub use core::prelude::v1::derive;
pub use core::{assert, concat, mem::size_of, stringify};

/// Compiles only if the field's type is passed to kernels unchanged (`Abi = Self`).
pub const fn argument_field<S, F: KernelArg<Abi = F>>(_: fn(&S) -> &F) {}

/// The size of the field in bytes. Compiles only if its type is [`DeviceData`].
pub const fn plain_field<S, F: DeviceData>(_: fn(&S) -> &F) -> usize {
    size_of::<F>()
}
