//! Items that the exported macros refer to. A crate that uses these macros may define macros,
//! crates and items with the names of core's, and an item that a macro declares may shadow a name
//! in a type that the user wrote. A macro therefore refers to core only through these paths,
//! declares no items where it repeats a user's type, and infers field types from the fields.

pub use core::clone::Clone;
pub use core::fmt::Debug;
pub use core::marker::Copy;
pub use core::prelude::v1::derive;
pub use core::{assert, concat, mem::size_of, stringify};
