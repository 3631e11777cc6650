//! Simulation of the GPU for kernels that run on the host.
//!
//! The facade of `warpheap-device` (`sync`, `warp`, `thread`, `shared`) asks the [`Machine`]
//! installed on the calling OS thread for the coordinates of the running lane, and passes every
//! collective to it. An executor installs a machine with [`install`] and runs lanes under it.
//! Without a machine, the calling OS thread is the only lane of the only warp of a grid of one
//! block.

use crate::units::{LaneMask, WARP_SIZE};
use core::any::TypeId;
use core::panic::Location;
use core::ptr::NonNull;
use std::boxed::Box;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;

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
/// It has the width of the mask that it is passed with: a CPU forwards a recent store to a load
/// without delay only if both have the same width.
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
/// The default methods are those of lane 0 of a warp, alone in its block.
///
/// # Safety
/// - `exchange` waits for the lanes of `mask`. Its result is live and does not change until the
///   lane calls the machine again.
/// - `converged` contains the running lane, and only lanes that are at `at`. `coords().lane` is
///   below 32.
/// - The result of `shared_memory` is as its documentation says.
/// - A machine with the default methods has lane 0 alone in each warp and block.
/// - `exit` and `trap` run either no destructor of the lane's frames or all of them.
pub unsafe trait Machine {
    /// The coordinates of the running lane. Not called while [`stand_at`] provides them. For a
    /// machine that uses `stand_at`, a call means that no lane runs.
    fn coords(&self) -> Coords;

    /// The lanes of this warp that have reached the same location `at`, including the running lane.
    fn converged(&self, _at: &'static Location<'static>) -> LaneMask {
        LaneMask::only(0)
    }

    /// Waits for the lanes of `mask`, then returns the inputs of all of them to each. A lane must
    /// read them before it calls the machine again. `None` if the lane is alone: it has the only
    /// input.
    fn exchange(
        &self,
        mask: LaneMask,
        _what: Collective,
        _value: u64,
        at: &'static Location<'static>,
    ) -> Option<NonNull<Deposits>> {
        assert_eq!(mask, LaneMask::only(0), "{at}: a collective names lanes that do not exist on the host");
        None
    }

    /// Waits for every thread of the block that has not ended.
    fn sync_block(&self, _at: &'static Location<'static>) {}

    /// The piece of the block's shared memory that `owner` names, of `words` 64-bit words. All
    /// threads of the block get the same piece. It is live until the last of them has ended.
    /// Default: each OS thread is a block.
    fn shared_memory(&self, owner: TypeId, words: usize) -> NonNull<u64> {
        own_piece(owner, words)
    }

    /// Called before every atomic operation: another lane may run here.
    fn step(&self) {}

    /// The lane waits for other lanes and pauses for about `nanos` nanoseconds.
    fn pause(&self, nanos: u32) {
        std::thread::sleep(std::time::Duration::from_nanos(nanos.into()));
    }

    /// Cycles since an arbitrary start. Monotonic for each lane.
    fn clock(&self) -> u64 {
        static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        START.get_or_init(std::time::Instant::now).elapsed().as_nanos() as u64
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

/// The shared memory of a block: one piece per owner, allocated on first use.
///
/// I1: each piece is a leaked `Box` and is freed when this value is dropped. The map holds
/// pointers, because moving a `Box` would invalidate pointers returned earlier.
#[derive(Debug, Default)]
pub struct SharedPieces {
    pieces: HashMap<(TypeId, usize), NonNull<[Cell<u64>]>>,
}

impl Drop for SharedPieces {
    fn drop(&mut self) {
        for (_, piece) in self.pieces.drain() {
            // SAFETY: the pointer comes from a `Box` (I1) and is no longer in the map. The threads
            // that received it do not use it after the drop.
            drop(unsafe { Box::from_raw(piece.as_ptr()) });
        }
    }
}

impl SharedPieces {
    /// The initial contents of a piece. On a GPU they are arbitrary.
    pub const GARBAGE: u64 = 0xA5A5_5A5A_F00D_BEEF;

    /// The piece of `owner`, of `words` words. It is live as long as `self`.
    pub fn piece(&mut self, owner: TypeId, words: usize) -> NonNull<u64> {
        let new = || {
            let piece = std::vec![Cell::new(Self::GARBAGE); words].into_boxed_slice();
            NonNull::from_mut(Box::leak(piece))
        };
        self.pieces.entry((owner, words)).or_insert_with(new).cast()
    }
}

std::thread_local! {
    /// The pieces of an OS thread with a machine that does not provide shared memory.
    static OWN_PIECES: RefCell<SharedPieces> = RefCell::default();
}

/// A piece of the calling OS thread.
fn own_piece(owner: TypeId, words: usize) -> NonNull<u64> {
    OWN_PIECES.with_borrow_mut(|pieces| pieces.piece(owner, words))
}

std::thread_local! {
    static INSTALLED: Cell<Option<*const dyn Machine>> = const { Cell::new(None) };
    /// The coordinates of the running lane, if the installed machine provides them here. Null when
    /// no lane runs.
    static STANDS_AT: Cell<*const Coords> = const { Cell::new(core::ptr::null()) };
}

/// A guard that restores the previously installed machine on drop.
#[must_use = "the machine is removed when this is dropped"]
#[derive(Debug)]
pub struct Installed {
    before: Option<*const dyn Machine>,
    stood_at: *const Coords,
}

/// Installs `machine` on this OS thread until the returned guard is dropped.
///
/// # Safety
/// The guard is dropped, not forgotten, before the machine is dropped or moved. Guards are dropped
/// in the reverse order of their creation.
pub unsafe fn install(machine: &dyn Machine) -> Installed {
    // SAFETY: the lifetime is erased here. The caller keeps the machine alive longer than the
    // guard, and the drop of the guard removes the pointer.
    let erased: *const (dyn Machine + 'static) = unsafe { core::mem::transmute(machine) };
    Installed { before: INSTALLED.replace(Some(erased)), stood_at: STANDS_AT.replace(core::ptr::null()) }
}

/// Sets the coordinates of the running lane of this OS thread, so that [`Machine::coords`] is not
/// called. Set them to null when the lane ends; `coords` is then called again.
///
/// # Safety
/// `coords` is null, or live and unchanged until the next call or until the machine's guard is
/// dropped.
#[inline]
pub unsafe fn stand_at(coords: *const Coords) {
    STANDS_AT.set(coords);
}

/// The address of the machine that is installed on this OS thread; 0 if there is none.
#[doc(hidden)]
#[inline]
pub fn installed() -> usize {
    INSTALLED.get().map_or(0, |machine| machine.cast::<()>().addr())
}

/// Whether a lane runs on this OS thread, as far as [`stand_at`] tells.
pub fn runs_a_lane() -> bool {
    !STANDS_AT.get().is_null()
}

/// Calls `f` without a running lane: what it allocates is not the lane's.
pub fn outside_lane<R>(f: impl FnOnce() -> R) -> R {
    struct Back(*const Coords);
    impl Drop for Back {
        fn drop(&mut self) {
            STANDS_AT.set(self.0);
        }
    }
    // Also if `f` panics.
    let _back = Back(STANDS_AT.replace(core::ptr::null()));
    f()
}

impl Drop for Installed {
    fn drop(&mut self) {
        INSTALLED.set(self.before);
        STANDS_AT.set(self.stood_at);
    }
}

/// Calls `f` on the installed machine, or on `SoleLane` if there is none.
///
/// # Safety
/// `f` makes one call of the machine, as a function of `warp`, `thread` or `shared` of the device
/// crate, with the location of that function's caller. If that function is unsafe, its requirements
/// hold. `f` does not drop the guard of the machine.
#[doc(hidden)]
#[inline]
pub unsafe fn with<R>(f: impl FnOnce(&dyn Machine) -> R) -> R {
    let machine: &dyn Machine = match INSTALLED.get() {
        // SAFETY: `install` keeps the machine alive while it is installed.
        Some(machine) => unsafe { &*machine },
        None => &SoleLane,
    };
    f(machine)
}

/// Calls `f` on the coordinates of the running lane.
#[doc(hidden)]
#[inline]
pub fn at<R>(f: impl FnOnce(&Coords) -> R) -> R {
    let coords = STANDS_AT.get();
    if coords.is_null() {
        // SAFETY: the coordinates of the lane, as the functions of `thread` read them.
        let coords = unsafe { with(|m| m.coords()) };
        return f(&coords);
    }
    // SAFETY: the caller of `stand_at` keeps them live and unchanged.
    f(unsafe { &*coords })
}

/// Called before every atomic operation on the host.
#[doc(hidden)]
#[inline]
pub fn step() {
    if let Some(machine) = INSTALLED.get() {
        // SAFETY: `install` keeps the machine alive while it is installed.
        unsafe { &*machine }.step()
    }
}

/// The machine of an OS thread without an executor: a single lane.
struct SoleLane;

// SAFETY: the lane is alone in its grid: it waits for no other, and is the only lane at a location.
unsafe impl Machine for SoleLane {
    fn coords(&self) -> Coords {
        Coords::SOLE
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Fails under Miri if a later piece invalidates the pointer to an earlier piece.
    #[test]
    fn pieces_stay_while_others_come() {
        let mut pieces = SharedPieces::default();
        let owner = TypeId::of::<u8>();
        let all: std::vec::Vec<_> = (1..100).map(|words| pieces.piece(owner, words)).collect();
        for (words, piece) in (1..100).zip(&all) {
            // SAFETY: the piece has at least one word and is live (`pieces` is).
            assert_eq!(unsafe { piece.read() }, SharedPieces::GARBAGE);
            // SAFETY: the piece has at least one word and is live (`pieces` is).
            unsafe { piece.write(words as u64) };
            assert_eq!(pieces.piece(owner, words), *piece, "the same piece again");
        }
        // SAFETY: each piece has at least one word and is live (`pieces` is).
        (1..).zip(&all).for_each(|(words, piece)| assert_eq!(unsafe { piece.read() }, words));
        assert_ne!(pieces.piece(TypeId::of::<u16>(), 1), all[0], "another owner's");
    }
}
