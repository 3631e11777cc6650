//! The pattern that an owner writes to its block and verifies later, to detect writes by others.
//!
//! The word at index `i` is `key + i * GOLDEN`, where `key` is a hash of the owner, its generation
//! and the run's seed. All words of one block differ. Those of two blocks, or of two generations of
//! one block, differ at every index except with probability 2^-64. The bytes after the last full
//! word are those of the next word.
//!
//! Every access goes to memory: a torn block is one that other threads write to, so neither the
//! compiler nor a cache may answer from what the owner wrote.

use super::hash::{GOLDEN, absorb};
use super::record::Owner;
use crate::sync::{peek_u8, peek_u64, poke_u8, poke_u64};

/// The pattern of one owner's block in one generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    key: u64,
}

/// The first position at which a block does not contain its pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tear {
    /// The offset from the start of the block, in bytes.
    pub offset: u64,
    /// The expected word, or byte if the access was a byte.
    pub expected: u64,
    /// The word or byte found.
    pub found: u64,
}

const WORD: u64 = size_of::<u64>() as u64;

impl Pattern {
    /// The pattern of `owner`'s block number `generation`, in the run of `seed`.
    #[inline(always)]
    pub fn new(seed: u64, owner: Owner, generation: u32) -> Self {
        Pattern { key: absorb(seed, u64::from(owner.0) << 32 | u64::from(generation)) }
    }

    #[inline(always)]
    fn word(self, i: u64) -> u64 {
        self.key.wrapping_add(i.wrapping_mul(GOLDEN))
    }

    /// The byte at `offset`, in little-endian order.
    #[inline(always)]
    fn byte(self, offset: u64) -> u8 {
        (self.word(offset / WORD) >> (offset % WORD * 8)) as u8
    }

    /// The number of words in which the bytes from `start` on are accessed. A block with a smaller
    /// alignment is accessed byte by byte.
    #[inline(always)]
    fn words(start: *mut u8, bytes: u64) -> u64 {
        if (start as u64).is_multiple_of(WORD) { bytes / WORD } else { 0 }
    }

    /// Writes the pattern.
    ///
    /// # Safety
    /// The block is writable memory. It has `bytes` bytes.
    #[inline(always)]
    pub unsafe fn fill(self, start: *mut u8, bytes: u64) {
        let words = Self::words(start, bytes);
        for i in 0..words {
            // SAFETY: `i < words`, and the block has `words` whole words after `start`.
            let place = unsafe { start.cast::<u64>().add(i as usize) };
            // SAFETY: aligned; the caller's first promise: writable memory.
            unsafe { poke_u64(place, self.word(i)) };
        }
        for offset in words * WORD..bytes {
            // SAFETY: `offset < bytes`, by the caller's promise the length of the block.
            let place = unsafe { start.add(offset as usize) };
            // SAFETY: the caller's first promise: writable memory.
            unsafe { poke_u8(place, self.byte(offset)) };
        }
    }

    /// Verifies the pattern. Returns the first position that differs.
    ///
    /// # Safety
    /// The block has `bytes` bytes. All of them were written.
    #[inline(always)]
    pub unsafe fn verify(self, start: *mut u8, bytes: u64) -> Option<Tear> {
        let words = Self::words(start, bytes);
        for i in 0..words {
            // SAFETY: `i < words`, and the block has `words` whole words after `start`.
            let place = unsafe { start.cast::<u64>().add(i as usize) };
            // SAFETY: aligned; the caller's second promise: written memory.
            let found = unsafe { peek_u64(place) };
            if found != self.word(i) {
                return Some(Tear { offset: i * WORD, expected: self.word(i), found });
            }
        }
        for offset in words * WORD..bytes {
            // SAFETY: `offset < bytes`, by the caller's promise the length of the block.
            let place = unsafe { start.add(offset as usize) };
            // SAFETY: the caller's second promise: written memory.
            let found = unsafe { peek_u8(place) };
            if found != self.byte(offset) {
                return Some(Tear { offset, expected: self.byte(offset).into(), found: found.into() });
            }
        }
        None
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Space for a block of any alignment.
    #[repr(C, align(16))]
    struct Memory([u8; 96]);

    #[test]
    fn every_changed_byte_is_found_whatever_the_size_and_the_alignment() {
        let pattern = Pattern::new(1, Owner(2), 3);
        for skew in [0, 1, 4, 8] {
            for bytes in 0..64u64 {
                let mut memory = Memory([0xaa; 96]);
                let start = memory.0[skew..].as_mut_ptr();
                // SAFETY: the block lies inside the array.
                unsafe { pattern.fill(start, bytes) };
                // SAFETY: the block lies inside the array.
                assert_eq!(unsafe { pattern.verify(start, bytes) }, None);
                assert!(memory.0[skew + bytes as usize..].iter().all(|&b| b == 0xaa), "past the end");
                for hit in 0..bytes {
                    memory.0[skew + hit as usize] ^= 1;
                    // SAFETY: the block lies inside the array.
                    let tear = unsafe { pattern.verify(memory.0[skew..].as_mut_ptr(), bytes) }.unwrap();
                    assert!(tear.offset <= hit && hit < tear.offset + 8, "{tear:?} {hit}");
                    assert_ne!(tear.expected, tear.found);
                    memory.0[skew + hit as usize] ^= 1;
                }
            }
        }
    }

    #[test]
    fn patterns_of_other_owners_generations_and_seeds_differ_at_every_word() {
        let mine = Pattern::new(1, Owner(2), 3);
        for other in
            [Pattern::new(2, Owner(2), 3), Pattern::new(1, Owner(3), 3), Pattern::new(1, Owner(2), 4)]
        {
            assert!((0..1000).all(|i| mine.word(i) != other.word(i)));
        }
    }
}
