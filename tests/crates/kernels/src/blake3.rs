//! BLAKE3, the portable implementation.

use crate::{Random, Sum};

/// Digests of several lengths, with a key, and with a long output.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    for len in [0, 1, 64, 1025, 2100] {
        let bytes = random.bytes(len);
        sum.bytes(blake3::hash(&bytes).as_bytes());
        sum.bytes(blake3::keyed_hash(&[seed as u8; 32], &bytes).to_hex().as_bytes());
    }
    let mut hasher = blake3::Hasher::new_derive_key("warpheap crates");
    hasher.update(b"one").update(b"two");
    let mut long = [0; 100];
    hasher.finalize_xof().fill(&mut long);
    sum.bytes(&long);
    sum.finish()
}
