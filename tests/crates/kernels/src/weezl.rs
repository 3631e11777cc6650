//! LZW, as in GIF and TIFF.

use crate::{Random, Sum};
use weezl::{BitOrder, decode, encode};

/// Compresses and decompresses, and decompresses damaged data.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    for order in [BitOrder::Lsb, BitOrder::Msb] {
        let data = random.repetitive(400);
        let Ok(mut compressed) = encode::Encoder::new(order, 8).encode(&data) else { return 1 };
        sum.bytes(&compressed);
        sum.add(decode::Decoder::new(order, 8).decode(&compressed).is_ok_and(|back| back == data).into());
        let at = random.below(compressed.len() as u64) as usize;
        compressed[at] ^= 1;
        match decode::Decoder::new(order, 8).decode(&compressed) {
            Ok(back) => sum.bytes(&back),
            Err(_) => sum.add(1),
        }
    }
    sum.finish()
}
