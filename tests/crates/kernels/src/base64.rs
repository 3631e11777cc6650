//! Base64.

use crate::{Random, Sum};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

/// Encodes and decodes, also broken texts.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    for len in 0..30 {
        let bytes = random.bytes(len);
        let texts = [STANDARD.encode(&bytes), URL_SAFE_NO_PAD.encode(&bytes)];
        texts.iter().for_each(|text| sum.bytes(text.as_bytes()));
        sum.add(STANDARD.decode(&texts[0]).is_ok_and(|back| back == bytes).into());
        sum.add(URL_SAFE_NO_PAD.decode(&texts[1]).is_ok_and(|back| back == bytes).into());
        sum.add(STANDARD.decode(&texts[1]).is_ok().into());
    }
    sum.finish()
}
