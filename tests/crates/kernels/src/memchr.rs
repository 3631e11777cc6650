//! Searches for bytes and texts.

use crate::{Random, Sum};
use memchr::memmem::Finder;
use memchr::{memchr, memchr_iter, memchr2, memchr3, memrchr};

/// Searches from both ends, for one byte, for several and for a text.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let text = random.text(300);
    let text = text.as_bytes();
    let place = |found: Option<usize>| found.map_or(u64::MAX, |at| at as u64);
    for start in 0..40.min(text.len()) {
        let text = &text[start..];
        sum.add(place(memchr(b'a', text)));
        sum.add(place(memrchr(b'b', text)));
        sum.add(place(memchr2(b'z', b'c', text)));
        sum.add(place(memchr3(b'x', b'y', b'd', text)));
    }
    memchr_iter(b'd', text).for_each(|at| sum.add(at as u64));
    let needle = random.text(3);
    Finder::new(&needle).find_iter(text).for_each(|at| sum.add(at as u64));
    sum.finish()
}
