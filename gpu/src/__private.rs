//! What the exported macros name. A crate that uses them may have macros, crates and items with the names of core's, and
//! the generics of its types may name items that stand beside them: so a macro names core by these paths alone, declares no
//! items where it repeats a type of the user, and takes types of fields from the fields.

use crate::kernel::{DeviceData, KernelArg};

pub use core::alloc::Layout;
pub use core::clone::Clone;
pub use core::fmt::Debug;
pub use core::marker::Copy;
pub use core::prelude::v1::derive;
pub use core::{assert, concat, mem::size_of, stringify};

/// Compiles if the field is an argument that is passed as it is.
pub const fn argument_field<S, F: KernelArg<Abi = F>>(_: fn(&S) -> &F) {}

/// The bytes of the field. Compiles if it is plain data.
pub const fn plain_field<S, F: DeviceData>(_: fn(&S) -> &F) -> usize {
    size_of::<F>()
}
