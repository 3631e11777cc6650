//! The parameters of a launch of the stress kernels.

/// Records per thread.
pub const SLOTS: u32 = 8;

/// The task of a launch's threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Phase {
    /// Each step allocates into an empty slot or frees a live one, so that each thread ends up with
    /// one block or two. In a pool that does not reclaim, the step verifies the pattern instead of
    /// freeing.
    Churn = 0,
    /// Allocate into every empty slot. With more slots than blocks, until the pool is empty.
    Fill = 1,
    /// Verify every pattern.
    Verify = 2,
    /// Free everything.
    Drain = 3,
    /// Free blocks of other threads, and allocate for other threads: see
    /// [`exchange`](super::exchange).
    Exchange = 4,
    /// Allocate for other threads.
    Produce = 5,
    /// Free blocks of other threads.
    Consume = 6,
}

crate::kernel_arg! {
    /// The parameters of a launch, equal for all its threads.
    #[derive(Debug, Default)]
    pub struct Round {
        /// The seed of all pseudo-random choices.
        pub seed: u64,
        /// A [`Phase`].
        pub phase: u32,
        /// The launch's number in the run, so that each launch chooses differently.
        pub number: u32,
        /// The index of the launch's first record in the table of all records.
        pub first_record: u32,
        /// Number of columns, and of the threads that work on them.
        pub threads: u32,
        /// Coprime to `threads`.
        pub multiplier: u32,
        /// The column of thread 0.
        pub offset: u32,
        /// The number of steps that a thread takes in [`Phase::Churn`].
        pub steps: u32,
        /// The smallest allocation, in bytes.
        pub min_bytes: u32,
        /// The largest allocation, in bytes.
        pub max_bytes: u32,
        /// The base-2 logarithm of the largest alignment, in bytes.
        pub max_align_log2: u32,
        /// 1 if the threads of a warp act alike in [`Phase::Churn`], otherwise 0.
        pub together: u32,
        /// A [`Mix`](super::mix::Mix) of sizes.
        pub mix: u32,
    }
}

const _: () = assert!(size_of::<Round>() == 56 && align_of::<Round>() == 8);
