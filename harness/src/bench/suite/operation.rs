//! What the threads do, and what varies.

/// What the threads of a series do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Every thread allocates one block.
    Alloc,
    /// Every thread frees one block.
    Free,
    /// Every thread repeatedly allocates a block, writes to it and frees it.
    Churn,
}

impl Operation {
    /// Its name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Operation::Alloc => "alloc",
            Operation::Free => "free",
            Operation::Churn => "churn",
        }
    }
}

/// The variable of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The number of threads.
    Threads,
    /// The size of the blocks.
    Bytes,
}

impl Over {
    /// Its name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Over::Threads => "threads",
            Over::Bytes => "bytes",
        }
    }
}
