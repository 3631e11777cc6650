//! Hexadecimal texts.

use crate::{Random, Sum};

/// Encodes and decodes, also broken texts.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    for len in 0..40 {
        let bytes = random.bytes(len);
        let mut text = hex::encode(&bytes);
        sum.bytes(text.as_bytes());
        sum.add(hex::decode(&text).is_ok_and(|back| back == bytes).into());
        text.push('g');
        sum.add(hex::decode(&text).is_ok().into());
        let mut array = [0; 8];
        sum.add(hex::decode_to_slice(hex::encode_upper(&bytes), &mut array).is_ok().into());
        sum.bytes(&array);
    }
    sum.finish()
}
