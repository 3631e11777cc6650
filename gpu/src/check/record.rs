//! A block as its owner remembers it, in device memory from one kernel to the next.
//!
//! ```text
//! Record | address | bytes | clashed 1 | align 6 | generation 25 |
//! ```

use crate::kernel::{DeviceData, DeviceSlice};
use core::alloc::Layout;

/// The owner of a block: the index of its [`Record`] in the table of all records,
/// plus one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Owner(pub u32);

impl Owner {
    /// No owner.
    pub const NONE: Owner = Owner(0);

    /// The owner of the record at `place`.
    #[inline(always)]
    pub const fn of_record(place: u32) -> Owner {
        Owner(place.wrapping_add(1))
    }

    /// The index of the owner's record; `None` for [`NONE`](Self::NONE).
    pub const fn record(self) -> Option<u32> {
        self.0.checked_sub(1)
    }
}

/// One slot of an owner: a live block, or empty. All zeros is an empty slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C, align(16))]
pub struct Record {
    address: u64,
    bytes: u32,
    tag: u32,
}

const _: () = assert!(size_of::<Record>() == 16 && align_of::<Record>() == 16);
/// The fields fill the type: it has no padding.
const _: () = assert!(size_of::<u64>() + size_of::<[u32; 2]>() == size_of::<Record>());
// SAFETY: `repr(C)` of integers without padding; any bytes are a record.
unsafe impl DeviceData for Record {}

/// A table of records in device memory.
pub type Records = DeviceSlice<Record>;

const GENERATION_BITS: u32 = 25;
const GENERATION: u32 = (1 << GENERATION_BITS) - 1;
const ALIGN: u32 = 0x3f;
const CLASHED: u32 = 1 << 31;
/// The largest alignment that a `Layout` with a 32-bit size can have.
const MAX_ALIGN_LOG2: u32 = 62;

impl Record {
    /// A live block of `layout` at `address`, in the slot's next generation.
    #[inline(always)]
    pub fn next(self, address: u64, layout: Layout) -> Record {
        let generation = (self.tag + 1) & GENERATION;
        let align = layout.align().trailing_zeros() << GENERATION_BITS;
        Record { address, bytes: layout.size() as u32, tag: align | generation }
    }

    /// The slot without its block.
    #[inline(always)]
    pub fn emptied(self) -> Record {
        Record { address: 0, bytes: 0, tag: self.tag & GENERATION }
    }

    /// The block, marked as not exclusively its owner's: it was not written to, and its content is
    /// not checked.
    #[inline(always)]
    pub fn clashed(self) -> Record {
        Record { tag: self.tag | CLASHED, ..self }
    }

    /// Whether the slot holds a block.
    #[inline(always)]
    pub const fn is_live(self) -> bool {
        self.address != 0
    }

    /// Whether the block overlapped another owner's when it was allocated.
    #[inline(always)]
    pub const fn is_clashed(self) -> bool {
        self.tag & CLASHED != 0
    }

    /// The address of the block; 0 if there is none.
    #[inline(always)]
    pub const fn address(self) -> u64 {
        self.address
    }

    /// The requested size in bytes.
    #[inline(always)]
    pub const fn bytes(self) -> u32 {
        self.bytes
    }

    /// The requested alignment.
    #[inline(always)]
    pub const fn align(self) -> u64 {
        let log2 = self.tag >> GENERATION_BITS & ALIGN;
        1 << if log2 < MAX_ALIGN_LOG2 { log2 } else { MAX_ALIGN_LOG2 }
    }

    /// The number of blocks that this slot has held, wrapping.
    #[inline(always)]
    pub const fn generation(self) -> u32 {
        self.tag & GENERATION
    }

    /// The requested layout.
    #[inline(always)]
    pub fn layout(self) -> Layout {
        // SAFETY: the alignment is a power of two of at most 2^62 and the size has 32 bits: rounded
        // up it does not exceed `isize::MAX`.
        unsafe { Layout::from_size_align_unchecked(self.bytes as usize, self.align() as usize) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_record_keeps_its_block() {
        let layout = Layout::from_size_align(4097, 1 << 20).unwrap();
        let live = Record::default().next(0xdead_0000, layout);
        assert!(live.is_live() && !live.is_clashed());
        assert_eq!((live.address(), live.layout(), live.generation()), (0xdead_0000, layout, 1));
        assert!(live.clashed().is_clashed());
        assert_eq!(live.clashed().layout(), layout);
        let empty = live.clashed().emptied();
        assert!(!empty.is_live() && !empty.is_clashed());
        assert_eq!(empty.next(16, layout).generation(), 2);
    }

    /// A record can be read from memory that was overwritten.
    #[test]
    fn any_bytes_have_a_valid_layout() {
        for tag in [u32::MAX, 0x3f << GENERATION_BITS, 62 << GENERATION_BITS, CLASHED] {
            let layout = Record { address: u64::MAX, bytes: u32::MAX, tag }.layout();
            assert_eq!(Layout::from_size_align(layout.size(), layout.align()), Ok(layout));
        }
    }

    #[test]
    fn generations_wrap_without_touching_the_alignment() {
        let layout = Layout::from_size_align(1, 8).unwrap();
        let mut record = Record { address: 0, bytes: 0, tag: GENERATION };
        record = record.next(64, layout);
        assert_eq!((record.generation(), record.align()), (0, 8));
    }
}
