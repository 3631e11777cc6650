//! `std::collections`.

pub use alloc_crate::collections::*;
pub use core::ops::Bound;
use hashbrown::DefaultHashBuilder;
pub use hashbrown::{hash_map, hash_set};

/// A map.
pub type HashMap<K, V, S = DefaultHashBuilder> = hashbrown::HashMap<K, V, S>;
/// A set.
pub type HashSet<T, S = DefaultHashBuilder> = hashbrown::HashSet<T, S>;
