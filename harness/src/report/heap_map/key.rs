//! The key of a map: the letters of size classes, and the sums of each.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use warpheap::device_pools::{HeapMap, MapPart, SlabContent};

/// With more classes, those between two powers of two share a letter.
const MAX_CLASSES: usize = 16;

/// The letters of the size classes of one or several maps, smallest class first.
#[derive(Debug)]
pub struct Key(Vec<RangeInclusive<u64>>);

/// Some size classes of a map with the same letter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Slabs of their runs.
    pub slabs: u64,
    /// Slabs of runs without a live block.
    pub idle_slabs: u64,
    /// Slabs in the span of a cursor of their class.
    pub held_slabs: u64,
    /// Blocks, live or free.
    pub blocks: u64,
    /// Live blocks.
    pub live_blocks: u64,
    /// Bytes of all blocks.
    pub bytes: u64,
    /// Bytes of the live blocks.
    pub live_bytes: u64,
}

impl Key {
    /// Letters for the classes of all of these maps.
    pub fn of(maps: &[HeapMap]) -> Key {
        let classes: BTreeSet<u64> =
            maps.iter().flat_map(|map| map.parts.iter().filter_map(class_of)).collect();
        let same = |one: u64, other: u64| {
            one == other || classes.len() > MAX_CLASSES && power_above(one) == power_above(other)
        };
        let mut groups: Vec<RangeInclusive<u64>> = Vec::new();
        for &class in &classes {
            match groups.last_mut() {
                Some(last) if same(*last.start(), class) => *last = *last.start()..=class,
                _ => groups.push(class..=class),
            }
        }
        Key(groups)
    }

    /// The place of a class in the key.
    pub fn index(&self, block_bytes: u64) -> usize {
        self.0.partition_point(|group| *group.end() < block_bytes)
    }

    /// The letters and the names: `a` and `64 B`, or `b` and `80 to 128 B`.
    pub fn names(&self) -> impl Iterator<Item = (char, String)> {
        self.0.iter().enumerate().map(|(index, group)| {
            let (min, max) = (group.start(), group.end());
            (letter(index), if min == max { format!("{min} B") } else { format!("{min} to {max} B") })
        })
    }

    /// The sums of a map for each letter. `held`: for each slab, whether a cursor holds it.
    pub fn sums(&self, map: &HeapMap, held: &[bool]) -> Vec<Group> {
        let mut groups = vec![Group::default(); self.0.len()];
        for part in &map.parts {
            let SlabContent::Run { block_bytes, blocks, free_blocks, quarantined_blocks } = part.content
            else {
                continue;
            };
            let group = &mut groups[self.index(block_bytes)];
            let live = u64::from(blocks - free_blocks - quarantined_blocks);
            let slabs = u64::from(part.slabs);
            group.slabs += slabs;
            group.idle_slabs += if part.is_free() { slabs } else { 0 };
            group.held_slabs += held[slabs_of(part)].iter().filter(|held| **held).count() as u64;
            group.blocks += u64::from(blocks);
            group.live_blocks += live;
            group.bytes += u64::from(blocks) * block_bytes;
            group.live_bytes += live * block_bytes;
        }
        groups
    }
}

/// The letter at a place of the key.
pub fn letter(index: usize) -> char {
    char::from(b'a' + index.min(25) as u8)
}

/// For each slab of a valid map, whether it is in a span of a cursor of its class.
pub fn held(map: &HeapMap) -> Vec<bool> {
    let mut classes = vec![None; map.slabs() as usize];
    for part in &map.parts {
        classes[slabs_of(part)].fill(class_of(part));
    }
    let mut held = vec![false; classes.len()];
    for span in &map.spans {
        let first = span.first_slab as usize;
        for slab in first..first + span.slabs as usize {
            held[slab] |= classes[slab] == Some(span.block_bytes);
        }
    }
    held
}

fn slabs_of(part: &MapPart) -> std::ops::Range<usize> {
    part.first_slab as usize..part.end() as usize
}

fn class_of(part: &MapPart) -> Option<u64> {
    match part.content {
        SlabContent::Run { block_bytes, .. } => Some(block_bytes),
        _ => None,
    }
}

/// The exponent of the first power of two that is not below `bytes`.
fn power_above(bytes: u64) -> u32 {
    bytes.saturating_sub(1).checked_ilog2().map_or(0, |log| log + 1)
}
