//! What stands in for the GPU when kernels run on the host.
//!
//! The facade ([`sync`](crate::sync), [`warp`](crate::warp), [`thread`](crate::thread)) asks the
//! [`Machine`] that is installed on the calling OS thread who it is, and hands it every collective. An
//! executor installs one with [`install`] and runs lanes under it. With none installed, the calling OS
//! thread is the only lane of the only warp of a grid of one block.

use crate::units::{LaneMask, WARP_SIZE};
use core::any::TypeId;
use core::panic::Location;
use core::ptr::NonNull;
use std::boxed::Box;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
#[cfg(not(loom))]
use std::time::Duration;

/// Where a GPU thread stands in its grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coords {
    /// This thread in its block (x, y, z).
    pub thread_idx: [u32; 3],
    /// This block in the grid (x, y, z).
    pub block_idx: [u32; 3],
    /// Threads in a block (x, y, z).
    pub block_dim: [u32; 3],
    /// Blocks in the grid (x, y, z).
    pub grid_dim: [u32; 3],
    /// This thread in its warp, `0..32`.
    pub lane: u32,
    /// The multiprocessor it runs on, `0..sm_count`.
    pub sm: u32,
    /// Multiprocessors of the device.
    pub sm_count: u32,
}

impl Coords {
    /// The only thread of a grid of one.
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

/// The collective a lane has come to. Lanes that meet in one must have called the same.
///
/// As wide as the mask that it is passed along with: a CPU reads what it has just written at once only in
/// parts as wide as those it was written in.
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

/// What the lanes of a collective brought to it.
#[derive(Clone, Copy, Debug)]
pub struct Deposits {
    /// The word of each lane; undefined for lanes outside its mask.
    pub words: [u64; WARP_SIZE as usize],
    /// The lanes of its mask whose word is not 0.
    pub nonzero: LaneMask,
    /// The bits that are set in any word of its mask.
    pub union: u64,
}

/// An executor, as the lane that it is running sees it. `at` is the line of the caller, for messages.
///
/// # Safety
/// - What `exchange` gives is live and does not change until the lane calls the machine again. It waits for the lanes of `mask`.
/// - `converged` has the running lane, and only lanes that are at `at`; `coords().lane` is below 32.
/// - What `shared_memory` gives is as it says.
/// - `exit` and `trap` do not run destructors of the lane's frames, or run all of them.
pub unsafe trait Machine {
    /// Where the running lane stands. Not asked while [`stand_at`] says it; a machine that keeps it there
    /// and is asked runs no lane.
    fn coords(&self) -> Coords;

    /// The lanes of this warp that have come to the same place `at`, the running one among them.
    fn converged(&self, at: &'static Location<'static>) -> LaneMask;

    /// Waits for the lanes of `mask`, then gives each what all of them brought, to be read before it calls
    /// the machine again. `None` for a lane that is alone: it knows what it brought.
    fn exchange(
        &self,
        mask: LaneMask,
        what: Collective,
        value: u64,
        at: &'static Location<'static>,
    ) -> Option<NonNull<Deposits>>;

    /// Waits for every thread of the block that has not ended.
    fn sync_block(&self, at: &'static Location<'static>);

    /// The piece of the block's shared memory that `owner` names, of `words` words of 64 bits: the same for all
    /// threads of the block, and live until the last of them has ended. Unless a machine knows better, an OS
    /// thread is a block.
    fn shared_memory(&self, owner: TypeId, words: usize) -> NonNull<u64> {
        OWN_PIECES.with_borrow_mut(|pieces| pieces.piece(owner, words))
    }

    /// Called before every atomic operation: another lane may run here.
    fn step(&self);

    /// The lane is waiting for others and has nothing to do for about so long.
    fn pause(&self, nanos: u32);

    /// Cycles since some start; never goes backwards for one lane.
    fn clock(&self) -> u64;

    /// Ends the running lane alone.
    fn exit(&self) -> !;

    /// Ends the whole grid with an error, as `trap` does on the device.
    fn trap(&self) -> !;
}

/// The shared memory of a block: a piece for each owner, made when it is first asked for.
///
/// I1: each piece is a leaked `Box`, and is freed when this is dropped. The map holds
/// pointers: moving a `Box` would invalidate those that were given out.
#[derive(Debug, Default)]
pub struct SharedPieces {
    pieces: HashMap<(TypeId, usize), NonNull<[Cell<u64>]>>,
}

impl Drop for SharedPieces {
    fn drop(&mut self) {
        for (_, piece) in self.pieces.drain() {
            // SAFETY: of a box (I1), and no longer in the map. Whoever was given it does not use it
            // any more.
            drop(unsafe { Box::from_raw(piece.as_ptr()) });
        }
    }
}

impl SharedPieces {
    /// What a new piece holds: on a GPU that is anything.
    pub const GARBAGE: u64 = 0xA5A5_5A5A_F00D_BEEF;

    /// The piece of `owner`, of `words` words. Live as long as this is.
    pub fn piece(&mut self, owner: TypeId, words: usize) -> NonNull<u64> {
        let new = || {
            let piece = std::vec![Cell::new(Self::GARBAGE); words].into_boxed_slice();
            NonNull::from_mut(Box::leak(piece))
        };
        self.pieces.entry((owner, words)).or_insert_with(new).cast()
    }
}

std::thread_local! {
    /// The pieces of an OS thread whose machine has none.
    static OWN_PIECES: RefCell<SharedPieces> = RefCell::default();
    static INSTALLED: Cell<Option<*const dyn Machine>> = const { Cell::new(None) };
    /// Where the running lane stands, if the installed machine keeps it here; null when no lane runs.
    static STANDS_AT: Cell<*const Coords> = const { Cell::new(core::ptr::null()) };
}

/// Puts back the machine that was installed before.
#[must_use = "the machine is removed when this is dropped"]
#[derive(Debug)]
pub struct Installed {
    before: Option<*const dyn Machine>,
    stood_at: *const Coords,
}

/// Installs `machine` on this OS thread until the returned guard is dropped.
///
/// # Safety
/// `machine` must outlive the guard, and guards must be dropped in the reverse order of their making.
pub unsafe fn install(machine: &dyn Machine) -> Installed {
    // SAFETY: the lifetime is erased here; the caller keeps the machine alive longer than the guard,
    // whose drop removes the pointer.
    let erased: *const (dyn Machine + 'static) = unsafe { core::mem::transmute(machine) };
    Installed { before: INSTALLED.replace(Some(erased)), stood_at: STANDS_AT.replace(core::ptr::null()) }
}

/// Where the running lane of this OS thread stands, so that the installed machine need not be asked; null,
/// after which it is asked, when that lane ends.
///
/// # Safety
/// `coords` is null, or live and unchanged until the next call or until the machine's guard is dropped.
#[inline]
pub unsafe fn stand_at(coords: *const Coords) {
    STANDS_AT.set(coords);
}

impl Drop for Installed {
    fn drop(&mut self) {
        INSTALLED.set(self.before);
        STANDS_AT.set(self.stood_at);
    }
}

/// Calls `f` on the installed machine, or on the sole lane's.
#[inline]
pub(crate) fn with<R>(f: impl FnOnce(&dyn Machine) -> R) -> R {
    let machine: &dyn Machine = match INSTALLED.get() {
        // SAFETY: `install` keeps the machine alive while it is installed.
        Some(machine) => unsafe { &*machine },
        None => &SoleLane,
    };
    f(machine)
}

/// Calls `f` on where the running lane stands.
#[inline]
pub(crate) fn at<R>(f: impl FnOnce(&Coords) -> R) -> R {
    let coords = STANDS_AT.get();
    if coords.is_null() {
        return f(&with(|m| m.coords()));
    }
    // SAFETY: `stand_at` has its caller keep them.
    f(unsafe { &*coords })
}

/// Called before every atomic operation on the host.
#[inline]
#[cfg_attr(loom, allow(dead_code))]
pub(crate) fn step() {
    if let Some(machine) = INSTALLED.get() {
        // SAFETY: as in `with`.
        unsafe { &*machine }.step()
    }
}

/// An OS thread that no executor drives.
struct SoleLane;

// SAFETY: `exchange` gives nothing.
unsafe impl Machine for SoleLane {
    fn coords(&self) -> Coords {
        Coords::SOLE
    }
    fn converged(&self, _: &'static Location<'static>) -> LaneMask {
        LaneMask::only(0)
    }
    fn exchange(
        &self,
        mask: LaneMask,
        _: Collective,
        _: u64,
        at: &'static Location<'static>,
    ) -> Option<NonNull<Deposits>> {
        assert_eq!(mask, LaneMask::only(0), "{at}: a collective names lanes that do not exist on the host");
        None
    }
    fn sync_block(&self, _: &'static Location<'static>) {}
    fn step(&self) {}
    fn pause(&self, nanos: u32) {
        #[cfg(loom)]
        {
            let _ = nanos;
            loom::thread::yield_now();
        }
        #[cfg(not(loom))]
        std::thread::sleep(Duration::from_nanos(nanos.into()));
    }
    fn clock(&self) -> u64 {
        use std::time::Instant;
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }
    fn exit(&self) -> ! {
        panic!("thread::exit outside of a kernel")
    }
    fn trap(&self) -> ! {
        panic!("trap outside of a kernel")
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Under Miri it fails if a piece moves in a way that its pointer does not survive.
    #[test]
    fn pieces_stay_while_others_come() {
        let mut pieces = SharedPieces::default();
        let owner = TypeId::of::<u8>();
        let all: std::vec::Vec<_> = (1..100).map(|words| pieces.piece(owner, words)).collect();
        for (words, piece) in (1..100).zip(&all) {
            // SAFETY: the piece has a word, and is live.
            assert_eq!(unsafe { piece.read() }, SharedPieces::GARBAGE);
            // SAFETY: the same.
            unsafe { piece.write(words as u64) };
            assert_eq!(pieces.piece(owner, words), *piece, "the same piece again");
        }
        // SAFETY: the same.
        (1..).zip(&all).for_each(|(words, piece)| assert_eq!(unsafe { piece.read() }, words));
        assert_ne!(pieces.piece(TypeId::of::<u16>(), 1), all[0], "another owner's");
    }
}
