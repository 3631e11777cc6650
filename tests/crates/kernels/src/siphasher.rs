//! SipHash.

use crate::{Random, Sum};
use core::hash::{Hash, Hasher};
use siphasher::sip::{SipHasher13, SipHasher24};
use siphasher::sip128::{Hasher128, SipHasher};

/// Hashes of bytes and of values.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    for len in 0..40 {
        let bytes = random.bytes(len);
        let mut hasher = SipHasher13::new_with_keys(seed, len as u64);
        (bytes.as_slice(), "text", Some(7_u16)).hash(&mut hasher);
        sum.add(hasher.finish());
        sum.add(SipHasher24::new_with_keys(1, 2).hash(&bytes));
        let mut wide = SipHasher::new();
        wide.write(&bytes);
        sum.bytes(&wide.finish128().as_bytes());
    }
    sum.finish()
}
