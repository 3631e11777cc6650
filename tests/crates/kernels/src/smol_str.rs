//! Texts that are stored inline or shared.

use crate::{Random, Sum};
use alloc::vec::Vec;
use smol_str::{SmolStr, SmolStrBuilder, StrExt, format_smolstr};

/// Clones, compares and sorts short and long texts.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let mut texts: Vec<SmolStr> = (0..20).map(|_| SmolStr::new(random.text(40))).collect();
    texts.push(format_smolstr!("{}-{}", random.below(100), random.text(3)));
    texts.push(texts[0].to_uppercase_smolstr());
    texts.extend_from_within(..10);
    let mut builder = SmolStrBuilder::new();
    texts.iter().take(5).for_each(|text| builder.push_str(text));
    texts.push(builder.finish());
    texts.sort();
    texts.dedup();
    for text in &texts {
        sum.add(text.is_heap_allocated().into());
        sum.bytes(text.as_bytes());
    }
    sum.finish()
}
