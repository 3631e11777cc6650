//! Texts of up to 24 bytes without an allocation.

use crate::{Random, Sum};
use alloc::vec::Vec;
use compact_str::{CompactString, ToCompactString, format_compact};

/// Changes short and long texts.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let mut texts: Vec<CompactString> = (0..20).map(|_| CompactString::from(random.text(30))).collect();
    for text in &mut texts {
        text.push_str(&random.text(10));
        text.insert(0, 'ß');
        if random.below(2) == 0 {
            text.truncate(2);
        }
        sum.add(text.is_heap_allocated().into());
    }
    texts.push(random.number().to_compact_string());
    texts.push(format_compact!("{:?}", (random.below(9), "x")));
    texts.sort();
    let all: CompactString = texts.iter().flat_map(|text| text.chars().rev()).collect();
    sum.bytes(all.as_bytes());
    sum.finish()
}
