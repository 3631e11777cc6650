//! Groups live blocks by a key.

use super::data::Holder;
use super::space::Space;
use crate::bytes::Bytes;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;

/// Groups of blocks, and for each the free ranges that end at one of them.
pub(crate) struct Holders<'a, K> {
    space: Option<&'a Space>,
    /// The starts of pieces before which a free range ends.
    gap_ends: HashSet<u64>,
    holders: HashMap<K, Group>,
}

#[derive(Default)]
struct Group {
    blocks: u64,
    bytes: u64,
    /// The pieces with these blocks before which a free range ends.
    pieces: HashSet<u64>,
}

impl<'a, K: Eq + Hash> Holders<'a, K> {
    pub fn new(space: Option<&'a Space>) -> Holders<'a, K> {
        let gap_ends = space.map(Space::gap_ends).unwrap_or_default().into_iter().collect();
        Holders { space, gap_ends, holders: HashMap::new() }
    }

    /// Adds live blocks of one piece: their number and bytes.
    pub fn add(&mut self, key: K, start: u64, (blocks, bytes): (u64, u64)) {
        let piece = self.space.and_then(|space| space.piece_of(start)).map(|piece| piece.start);
        let ended = piece.filter(|start| self.gap_ends.contains(start));
        let group = self.holders.entry(key).or_default();
        group.blocks = group.blocks.saturating_add(blocks);
        group.bytes = group.bytes.saturating_add(bytes);
        group.pieces.extend(ended);
    }

    /// The groups, those with the most bytes first, then by name. `named` returns the name of a
    /// group, and the number of its blocks that were freed, if it is known.
    pub fn finish(self, named: impl Fn(K) -> (String, Option<u64>)) -> Vec<Holder> {
        let holder = |(key, Group { blocks, bytes, pieces })| {
            let (name, freed) = named(key);
            Holder { name, blocks, bytes, freed, ends_free_ranges: pieces.len() as u64 }
        };
        let mut holders: Vec<_> = self.holders.into_iter().map(holder).collect();
        holders.sort_by(|a, b| Reverse(a.bytes).cmp(&Reverse(b.bytes)).then_with(|| a.name.cmp(&b.name)));
        holders
    }
}

/// The name of the doubling that begins with 2 to the power of `exponent`, such as `1.0 MiB to 2.0
/// MiB`.
pub(super) fn doubling(exponent: u32) -> String {
    let from = 1_u64.checked_shl(exponent).unwrap_or(u64::MAX);
    format!("{:#} to {:#}", Bytes(from), Bytes(from.saturating_mul(2)))
}
