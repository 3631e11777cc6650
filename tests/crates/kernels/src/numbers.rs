//! The data of a checksum, and the checksum.

use alloc::string::String;
use alloc::vec::Vec;

/// Pseudo-random numbers: SplitMix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`; 0 if `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.number().checked_rem(limit).unwrap_or(0)
    }

    /// A number from 0 to below 1.
    pub fn unit(&mut self) -> f64 {
        (self.number() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A text of 0 to `most` letters, a to d.
    pub fn text(&mut self, most: u64) -> String {
        (0..self.below(most + 1)).map(|_| char::from(b'a' + self.below(4) as u8)).collect()
    }

    /// `len` bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.number() as u8).collect()
    }

    /// `len` bytes, with sequences that occur again.
    pub fn repetitive(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = self.bytes(16);
        while bytes.len() < len {
            let start = self.below(bytes.len() as u64) as usize;
            let end = bytes.len().min(start + self.below(30) as usize);
            bytes.extend_from_within(start..end);
            bytes.push(self.below(20) as u8);
        }
        bytes.truncate(len);
        bytes
    }
}

/// A checksum that depends on the order of what is added.
#[derive(Clone, Debug)]
pub struct Sum(u64);

impl Sum {
    /// The checksum of nothing.
    #[expect(clippy::new_without_default, reason = "not a value of nothing, but a start")]
    pub fn new() -> Sum {
        Sum(1)
    }

    /// Adds a number.
    pub fn add(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x100_0000_01b3).rotate_left(29);
    }

    /// Adds bytes and their number.
    pub fn bytes(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.add((*byte).into()));
        self.add(bytes.len() as u64);
    }

    /// The checksum of all that was added.
    pub fn finish(self) -> u64 {
        self.0
    }
}
