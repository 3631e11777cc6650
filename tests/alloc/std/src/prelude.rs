//! `std::prelude`.

/// `std::prelude::rust_2024`.
pub mod rust_2024 {
    pub use crate::{Float, dbg, eprintln, print, println, thread_local};
    pub use alloc_crate::borrow::ToOwned;
    pub use alloc_crate::boxed::Box;
    pub use alloc_crate::string::{String, ToString};
    pub use alloc_crate::vec::Vec;
    pub use alloc_crate::{format, vec};
    pub use core::prelude::rust_2024::*;
}
