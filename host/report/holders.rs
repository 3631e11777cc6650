//! Groups live blocks by name.

use super::Holder;
use super::space::Space;
use crate::error::Bytes;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

/// Groups of blocks, and for each the free ranges that end at one of them.
pub(crate) struct Holders<'a> {
    space: Option<&'a Space>,
    /// The starts of pieces before which a free range ends.
    gap_ends: HashSet<u64>,
    holders: HashMap<String, Holder>,
    /// The last piece that counted for each holder.
    counted: HashMap<String, HashSet<u64>>,
}

impl<'a> Holders<'a> {
    pub fn new(space: Option<&'a Space>) -> Holders<'a> {
        let gap_ends = space.map(Space::gap_ends).unwrap_or_default().into_iter().collect();
        Holders { space, gap_ends, holders: HashMap::new(), counted: HashMap::new() }
    }

    /// Adds live blocks of one piece: their number and bytes.
    pub fn add(&mut self, name: &str, start: u64, (blocks, bytes): (u64, u64)) {
        let ends_gap = self.ends_gap(name, start);
        let holder = match self.holders.get_mut(name) {
            Some(holder) => holder,
            None => {
                let holder = Holder { name: name.into(), ..Holder::default() };
                self.holders.entry(name.into()).or_insert(holder)
            }
        };
        holder.blocks += blocks;
        holder.bytes += bytes;
        holder.ends_free_ranges += u64::from(ends_gap);
    }

    /// Whether a free range ends at the piece with this block, and no other block of the same
    /// holder in that piece was counted before.
    fn ends_gap(&mut self, name: &str, start: u64) -> bool {
        let Some(piece) = self.space.and_then(|space| space.piece_of(start)) else { return false };
        if !self.gap_ends.contains(&piece.start) {
            return false;
        }
        match self.counted.get_mut(name) {
            Some(pieces) => pieces.insert(piece.start),
            None => self.counted.entry(name.into()).or_default().insert(piece.start),
        }
    }

    /// The groups, those with the most bytes first, then by name.
    pub fn finish(self) -> Vec<Holder> {
        let mut holders: Vec<_> = self.holders.into_values().collect();
        holders.sort_by(|a, b| Reverse(a.bytes).cmp(&Reverse(b.bytes)).then_with(|| a.name.cmp(&b.name)));
        holders
    }
}

/// The names of the doublings that contain sizes, such as `1.0 MiB to 2.0 MiB`, by the exponent of
/// their start.
pub(super) fn doublings() -> [String; 64] {
    std::array::from_fn(|exponent| {
        let from = 1_u64 << exponent;
        format!("{:#} to {:#}", Bytes(from), Bytes(from.saturating_mul(2)))
    })
}
