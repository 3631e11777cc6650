//! SHA-256 and SHA-512.

use crate::{Random, Sum};
use sha2::{Digest, Sha256, Sha512};

/// Digests of several lengths, in one call and in parts.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    for len in [0, 1, 55, 56, 64, 200] {
        let bytes = random.bytes(len);
        sum.bytes(&Sha256::digest(&bytes));
        let mut parts = Sha512::new();
        bytes.chunks(33).for_each(|part| parts.update(part));
        sum.bytes(&parts.finalize());
    }
    sum.finish()
}
