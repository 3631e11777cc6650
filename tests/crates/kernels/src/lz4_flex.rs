//! LZ4 blocks.

use crate::{Random, Sum};
use lz4_flex::block::{compress_prepend_size, decompress_size_prepended};

/// Compresses and decompresses, and decompresses damaged data.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let data = random.repetitive(600);
    let mut compressed = compress_prepend_size(&data);
    sum.bytes(&compressed);
    sum.add(decompress_size_prepended(&compressed).is_ok_and(|back| back == data).into());
    let at = 4 + random.below(compressed.len() as u64 - 4) as usize;
    compressed[at] ^= 1;
    match decompress_size_prepended(&compressed) {
        Ok(back) => sum.bytes(&back),
        Err(_) => sum.add(1),
    }
    sum.finish()
}
