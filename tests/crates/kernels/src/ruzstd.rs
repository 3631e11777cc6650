//! Zstandard.

use crate::{Random, Sum};
use alloc::vec::Vec;
use ruzstd::decoding::StreamingDecoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use ruzstd::io::Read;

/// Compresses and decompresses.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let data = random.repetitive(600);
    let compressed = compress_to_vec(data.as_slice(), CompressionLevel::Fastest);
    sum.bytes(&compressed);
    let mut back = Vec::new();
    match StreamingDecoder::new(compressed.as_slice()) {
        Ok(mut decoder) => sum.add(decoder.read_to_end(&mut back).is_ok().into()),
        Err(_) => sum.add(2),
    }
    sum.add((back == data).into());
    sum.finish()
}
