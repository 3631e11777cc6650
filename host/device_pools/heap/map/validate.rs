//! Checks a map that was read from a file.

use super::{HeapMap, MapPart, SlabContent};

/// The most slabs of a heap.
const MAX_SLABS: u64 = 1 << 22;
/// The largest slab is far smaller. With this limit, no sum of a map overflows.
const MAX_SLAB_BYTES: u64 = 1 << 30;

/// Why a map is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidMap {
    /// Another schema.
    #[error("its schema is `{found}`, but this version reads `{}`", HeapMap::SCHEMA)]
    Schema {
        /// The schema of the map.
        found: String,
    },
    /// The sizes contradict each other.
    #[error(
        "its sizes are no heap: {heap_bytes} bytes, {mapped_bytes} of them mapped, slabs of {slab_bytes} bytes"
    )]
    Sizes {
        /// `heap_bytes` of the map.
        heap_bytes: u64,
        /// `mapped_bytes` of the map.
        mapped_bytes: u64,
        /// `slab_bytes` of the map.
        slab_bytes: u64,
    },
    /// M1: a gap, an overlap, or a part outside the heap.
    #[error(
        "parts[{index}] has {slabs} slabs from slab {first_slab} on, but the part before it ends at slab {expected} and the heap at slab {end}"
    )]
    Order {
        /// The index of the part.
        index: usize,
        /// `first_slab` of the part.
        first_slab: u32,
        /// `slabs` of the part.
        slabs: u32,
        /// The end of the part before it.
        expected: u64,
        /// The number of slabs of the heap.
        end: u64,
    },
    /// M1: the parts do not cover the heap.
    #[error("its parts end at slab {found}, but the heap at slab {end}")]
    End {
        /// The end of the last part.
        found: u64,
        /// The number of slabs of the heap.
        end: u64,
    },
    /// M2: the numbers of a part contradict each other.
    #[error("parts[{index}], from slab {first_slab} on, contradicts itself: {content:?} in {slabs} slabs")]
    Content {
        /// The index of the part.
        index: usize,
        /// `first_slab` of the part.
        first_slab: u32,
        /// `slabs` of the part.
        slabs: u32,
        /// What it contains.
        content: SlabContent,
    },
    /// M3: a span outside the heap.
    #[error("spans[{index}] has {slabs} slabs from slab {first_slab} on, but the heap ends at slab {end}")]
    Span {
        /// The index of the span.
        index: usize,
        /// `first_slab` of the span.
        first_slab: u32,
        /// `slabs` of the span.
        slabs: u32,
        /// The number of slabs of the heap.
        end: u64,
    },
}

impl HeapMap {
    /// Checks a map that was read from a file. A map from a snapshot is valid.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn validate(&self) -> Result<(), InvalidMap> {
        if self.schema != Self::SCHEMA {
            return Err(InvalidMap::Schema { found: self.schema.clone() });
        }
        self.validate_sizes()?;
        let end = self.slabs();
        let mut expected = 0;
        for (index, part) in self.parts.iter().enumerate() {
            let MapPart { first_slab, slabs, content } = *part;
            let part_end = u64::from(first_slab) + u64::from(slabs);
            if u64::from(first_slab) != expected || slabs == 0 || part_end > end {
                return Err(InvalidMap::Order { index, first_slab, slabs, expected, end });
            }
            if !is_consistent(part, self.slab_bytes) {
                return Err(InvalidMap::Content { index, first_slab, slabs, content });
            }
            expected = part_end;
        }
        if expected != end {
            return Err(InvalidMap::End { found: expected, end });
        }
        let is_outside = |first: u32, slabs: u32| u64::from(first) + u64::from(slabs) > end;
        match self.spans.iter().enumerate().find(|(_, span)| is_outside(span.first_slab, span.slabs)) {
            Some((index, span)) => {
                Err(InvalidMap::Span { index, first_slab: span.first_slab, slabs: span.slabs, end })
            }
            None => Ok(()),
        }
    }

    fn validate_sizes(&self) -> Result<(), InvalidMap> {
        let HeapMap { heap_bytes, mapped_bytes, slab_bytes, .. } = *self;
        let are_whole = slab_bytes.is_power_of_two() && heap_bytes.is_multiple_of(slab_bytes);
        let are_small = slab_bytes <= MAX_SLAB_BYTES && (1..=MAX_SLABS).contains(&self.slabs());
        if are_whole && are_small && mapped_bytes <= heap_bytes {
            return Ok(());
        }
        Err(InvalidMap::Sizes { heap_bytes, mapped_bytes, slab_bytes })
    }
}

/// M2, and the size of a large allocation.
fn is_consistent(part: &MapPart, slab_bytes: u64) -> bool {
    let bytes = u64::from(part.slabs) * slab_bytes;
    match part.content {
        SlabContent::Run { block_bytes, blocks, free_blocks, quarantined_blocks } => {
            let in_blocks = block_bytes.checked_mul(blocks.into());
            let fits = in_blocks.is_some_and(|in_blocks| in_blocks > 0 && in_blocks <= bytes);
            fits && u64::from(free_blocks) + u64::from(quarantined_blocks) <= blocks.into()
        }
        SlabContent::Large { bytes: stated, .. } => stated == bytes,
        SlabContent::Fresh | SlabContent::Free | SlabContent::Unmapped | SlabContent::Unknown => true,
    }
}
