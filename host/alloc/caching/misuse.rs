//! What is wrong with a free that is refused.

use super::live::Wrong;
use super::{CachingPool, NAME};
use crate::alloc::{DeviceAllocator, lock, words};
use crate::error::Error;
use std::alloc::Layout;

impl<A: DeviceAllocator> CachingPool<A> {
    /// What is wrong with an address that is given back.
    #[cold]
    pub(super) fn misuse(&self, address: u64, layout: Layout, wrong: Wrong) -> Error {
        let why = match wrong {
            Wrong::Free => "the block there is free already".into(),
            Wrong::Layout(given) => format!("it was allocated as {}, not as {}", words(given), words(layout)),
            Wrong::Unknown => self.whereabouts(address),
        };
        Error::AllocFree { allocator: NAME.into(), address, why }
    }

    /// What is at an address that no block starts at.
    fn whereabouts(&self, address: u64) -> String {
        let shared = lock(&self.shared);
        let Some((node, is_free)) = shared.arena.piece_of(address) else {
            return "it is in no segment of the pool's: it is of another allocator, or its segment was given back before".into();
        };
        let start = shared.block_at(node, address);
        match self.live.asked(start).filter(|_| !is_free) {
            Some(layout) => format!("it lies inside of the block of {} at {start:#x}", words(layout)),
            None => "nothing is allocated there: it was given back before, or never allocated".into(),
        }
    }
}
