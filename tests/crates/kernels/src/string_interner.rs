//! Texts that are stored once.

use crate::{Random, Sum};
use string_interner::StringInterner;
use string_interner::backend::StringBackend;
use string_interner::symbol::{Symbol, SymbolU32};

/// Interns words, and finds them by symbol.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let mut interner: StringInterner<StringBackend<SymbolU32>> = StringInterner::new();
    for _ in 0..120 {
        let word = random.text(3);
        let symbol = interner.get_or_intern(&word);
        sum.add(symbol.to_usize() as u64);
        sum.add((interner.resolve(symbol) == Some(word.as_str())).into());
    }
    sum.add(interner.get("abc").map_or(99, |symbol| symbol.to_usize() as u64));
    for (_, word) in &interner {
        sum.bytes(word.as_bytes());
    }
    sum.finish()
}
