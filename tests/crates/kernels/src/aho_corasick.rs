//! Searches for many words at once.

use crate::{Random, Sum};
use aho_corasick::{AhoCorasick, MatchKind};

/// Finds and replaces random words in a random text.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let words: alloc::vec::Vec<_> = (0..6).map(|_| random.text(3) + "a").collect();
    let text = random.text(200);
    for kind in [MatchKind::Standard, MatchKind::LeftmostFirst, MatchKind::LeftmostLongest] {
        let Ok(search) = AhoCorasick::builder().match_kind(kind).build(&words) else { return 1 };
        for found in search.find_iter(&text) {
            sum.add(found.pattern().as_u64() << 32 | found.start() as u64);
        }
        sum.bytes(search.replace_all(&text, &["1", "2", "3", "4", "5", "6"]).as_bytes());
    }
    sum.finish()
}
