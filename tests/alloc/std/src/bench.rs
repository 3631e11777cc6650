//! Stands for the crate `test`.

/// Is only named.
#[derive(Debug)]
pub struct Bencher;
