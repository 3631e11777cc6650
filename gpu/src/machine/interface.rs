//! What an executor provides to the lane that it runs.

use super::shared::own_piece;
use crate::units::{LaneMask, WARP_SIZE};
use core::any::TypeId;
use core::panic::Location;
use core::ptr::NonNull;

/// The coordinates of a GPU thread in its grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coords {
    /// Index of the thread in its block (x, y, z).
    pub thread_idx: [u32; 3],
    /// Index of the block in the grid (x, y, z).
    pub block_idx: [u32; 3],
    /// Number of threads in a block (x, y, z).
    pub block_dim: [u32; 3],
    /// Number of blocks in the grid (x, y, z).
    pub grid_dim: [u32; 3],
    /// Index of the lane in its warp, `0..32`.
    pub lane: u32,
    /// The SM that the thread runs on, `0..sm_count`.
    pub sm: u32,
    /// Number of SMs of the device.
    pub sm_count: u32,
}

impl Coords {
    /// The only thread of a grid of one thread.
    pub const SOLE: Coords = Coords {
        thread_idx: [0; 3],
        block_idx: [0; 3],
        block_dim: [1; 3],
        grid_dim: [1; 3],
        lane: 0,
        sm: 0,
        sm_count: 1,
    };
}

/// The collective that a lane has reached. All lanes of one collective must call the same one.
///
/// As wide as the mask that it is passed with: a CPU forwards a recent store to a load without
/// delay only if both have the same width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Collective {
    /// `bar.warp.sync`
    Sync,
    /// `vote.sync`
    Vote,
    /// `match.sync`
    Match,
    /// `shfl.sync`
    Shuffle,
    /// `redux.sync.add`
    ReduceAdd,
    /// `redux.sync.or`
    ReduceOr,
}

/// The inputs of a collective.
#[derive(Clone, Copy, Debug)]
pub struct Deposits {
    /// The word of each lane. Undefined for lanes outside the mask.
    pub words: [u64; WARP_SIZE as usize],
    /// The lanes of the mask with a word other than 0.
    pub nonzero: LaneMask,
    /// Bitwise OR of the words of the mask.
    pub union: u64,
}

/// The interface of an executor to the lane that it runs. `at` is the caller's source location, for
/// messages.
///
/// The default methods are those of a lane that is alone in its block.
///
/// # Safety
/// - `exchange` waits for the lanes of `mask`. Its result is live and does not change until the
///   lane calls the machine again.
/// - `converged` contains the running lane, and only lanes that are at `at`. `coords().lane` is
///   below 32.
/// - The result of `shared_memory` is as its documentation says.
/// - `exit` and `trap` run either no destructor of the lane's frames or all of them.
pub unsafe trait Machine {
    /// The coordinates of the running lane. Not called while [`stand_at`](super::stand_at) provides
    /// them. For a machine that uses `stand_at`, a call means that no lane runs.
    fn coords(&self) -> Coords;

    /// The lanes of this warp that have reached the same location `at`, including the running lane.
    fn converged(&self, at: &'static Location<'static>) -> LaneMask;

    /// Waits for the lanes of `mask`, then returns the inputs of all of them to each. A lane must
    /// read them before it calls the machine again. `None` if the lane is alone: it has the only
    /// input.
    fn exchange(
        &self,
        mask: LaneMask,
        what: Collective,
        value: u64,
        at: &'static Location<'static>,
    ) -> Option<NonNull<Deposits>>;

    /// Waits for every thread of the block that has not ended.
    fn sync_block(&self, at: &'static Location<'static>);

    /// The piece of the block's shared memory that `owner` names, of `words` 64-bit words. All
    /// threads of the block get the same piece. It is live until the last of them has ended.
    /// Default: each OS thread is a block.
    fn shared_memory(&self, owner: TypeId, words: usize) -> NonNull<u64> {
        own_piece(owner, words)
    }

    /// Orders the running lane after what the lanes of its last collective did before that. Only
    /// unit tests of this crate check it.
    #[cfg(test)]
    fn order(&self) {}

    /// Called before every atomic operation: another lane may run here.
    fn step(&self) {}

    /// The lane waits for other lanes and pauses for about `nanos` nanoseconds.
    fn pause(&self, nanos: u32) {
        #[cfg(loom)]
        {
            let _ = nanos;
            loom::thread::yield_now();
        }
        #[cfg(not(loom))]
        std::thread::sleep(std::time::Duration::from_nanos(nanos.into()));
    }

    /// Cycles since an arbitrary start. Monotonic for each lane.
    fn clock(&self) -> u64 {
        #[cfg(all(test, not(loom)))]
        {
            crate::test_lanes::clock()
        }
        #[cfg(not(all(test, not(loom))))]
        {
            static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
            START.get_or_init(std::time::Instant::now).elapsed().as_nanos() as u64
        }
    }

    /// Ends the running lane only.
    fn exit(&self) -> ! {
        panic!("thread::exit outside of a kernel")
    }

    /// Ends the whole grid with an error, as `trap` does on the device.
    fn trap(&self) -> ! {
        panic!("trap outside of a kernel")
    }
}
