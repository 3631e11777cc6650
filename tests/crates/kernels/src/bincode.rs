//! A binary format with its own derive macros.

use crate::{Random, Sum};
use alloc::string::String;
use alloc::vec::Vec;
use bincode::{Decode, Encode, config};

#[derive(Encode, Decode, PartialEq)]
struct Entry {
    key: String,
    values: Vec<u32>,
    flag: Option<bool>,
}

/// Writes entries, reads them, and reads a part of them.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let entries: Vec<Entry> = (0..8)
        .map(|_| Entry {
            key: random.text(10),
            values: (0..random.below(5)).map(|_| random.number() as u32).collect(),
            flag: [None, Some(false), Some(true)][random.below(3) as usize],
        })
        .collect();
    let Ok(bytes) = bincode::encode_to_vec(&entries, config::standard()) else { return 1 };
    sum.bytes(&bytes);
    let back: Result<(Vec<Entry>, usize), _> = bincode::decode_from_slice(&bytes, config::standard());
    sum.add(back.is_ok_and(|(back, len)| back == entries && len == bytes.len()).into());
    let part = &bytes[..random.below(bytes.len() as u64) as usize];
    let back: Result<(Vec<Entry>, usize), _> = bincode::decode_from_slice(part, config::standard());
    sum.add(back.is_ok().into());
    sum.finish()
}
