//! Graphemes, words and sentences.

use crate::{Random, Sum};
use alloc::string::String;
use unicode_segmentation::UnicodeSegmentation;

/// Cuts texts of several scripts.
pub fn checksum(seed: u64) -> u64 {
    const PARTS: [&str; 10] = ["e\u{301}", "🇩🇪", "👩‍💻", " ", ". ", "Wort", "한국", "can't", "३", "\r\n"];
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let text: String = (0..25).map(|_| PARTS[random.below(10) as usize]).collect();
    for (at, grapheme) in text.grapheme_indices(true) {
        sum.add(at as u64);
        sum.bytes(grapheme.as_bytes());
    }
    text.unicode_words().for_each(|word| sum.bytes(word.as_bytes()));
    text.unicode_sentences().for_each(|sentence| sum.add(sentence.len() as u64));
    text.graphemes(true).rev().take(5).for_each(|grapheme| sum.bytes(grapheme.as_bytes()));
    sum.finish()
}
