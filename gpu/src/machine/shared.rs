//! The shared memory of a block on the host.

use core::any::TypeId;
use core::ptr::NonNull;
use std::boxed::Box;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;

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
pub(super) fn own_piece(owner: TypeId, words: usize) -> NonNull<u64> {
    OWN_PIECES.with_borrow_mut(|pieces| pieces.piece(owner, words))
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
