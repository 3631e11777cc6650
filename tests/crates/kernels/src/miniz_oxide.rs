//! DEFLATE.

use crate::{Random, Sum};
use miniz_oxide::deflate::compress_to_vec_zlib;
use miniz_oxide::inflate::decompress_to_vec_zlib;

/// Compresses and decompresses, and decompresses damaged data.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let data = random.repetitive(600);
    let mut compressed = compress_to_vec_zlib(&data, 6);
    sum.bytes(&compressed);
    let back = decompress_to_vec_zlib(&compressed);
    sum.add(back.is_ok_and(|back| back == data).into());
    let at = random.below(compressed.len() as u64) as usize;
    compressed[at] ^= 1;
    match decompress_to_vec_zlib(&compressed) {
        Ok(back) => sum.bytes(&back),
        Err(error) => sum.add(error.status as u64),
    }
    sum.finish()
}
