//! A text in memory that the host and the device share.
//!
//! I1. Byte `i` is byte `i % 8` of word `i / 8`. The bytes from `len` on are meaningless.

use crate::sync::SystemAtomicU64;
use core::fmt;

/// Bytes of a word.
const WORD: usize = size_of::<u64>();

/// A text of at most `8 * WORDS` bytes.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Text<const WORDS: usize> {
    len: SystemAtomicU64,
    words: [SystemAtomicU64; WORDS],
}

impl<const WORDS: usize> Text<WORDS> {
    /// The empty text.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(super) fn empty() -> Self {
        let word = |_| SystemAtomicU64::new(0);
        Text { len: word(0), words: core::array::from_fn(word) }
    }

    /// Replaces the text by what `write` writes. What exceeds the text's capacity is left out.
    #[cfg_attr(not(target_arch = "nvptx64"), allow(dead_code, reason = "without `panic-message`"))]
    pub(super) fn set(&self, write: impl FnOnce(&mut Writer<'_>)) {
        // Relaxed, like all accesses here: the release of the record's `published` orders them.
        self.len.store_relaxed(0);
        let mut writer = Writer { words: &self.words, bytes: 0, word: 0 };
        write(&mut writer);
        writer.store_word();
        self.len.store_relaxed(writer.bytes as u64);
    }

    /// The text. Bytes that are not UTF-8, of a character that was cut for example, are replaced.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(super) fn get(&self) -> std::string::String {
        let len = (self.len.load_relaxed() as usize).min(WORD * WORDS);
        let bytes = self.words.iter().flat_map(|word| word.load_relaxed().to_le_bytes());
        let bytes: std::vec::Vec<u8> = bytes.take(len).collect();
        std::string::String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Appends to a text.
pub(super) struct Writer<'a> {
    words: &'a [SystemAtomicU64],
    bytes: usize,
    /// The bytes after the last full word.
    word: u64,
}

impl Writer<'_> {
    /// Appends as many of these bytes as there is room for.
    #[inline(always)]
    pub(super) fn push(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.bytes >= WORD * self.words.len() {
                break;
            }
            self.word |= u64::from(*byte) << (8 * (self.bytes % WORD));
            self.bytes += 1;
            if self.bytes.is_multiple_of(WORD) {
                // The word before: `store_word` stores the one that `bytes` is in.
                self.store(self.bytes / WORD - 1);
                self.word = 0;
            }
        }
    }

    /// Stores the bytes after the last full word, if there is room for more.
    fn store_word(&self) {
        self.store(self.bytes / WORD);
    }

    fn store(&self, i: usize) {
        if let Some(word) = self.words.get(i) {
            word.store_relaxed(self.word);
        }
    }
}

impl fmt::Write for Writer<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::fmt::Write;
    use std::string::String;

    #[test]
    fn a_text_is_read_as_it_was_written_and_cut_at_its_capacity() {
        let text = Text::<2>::empty();
        assert_eq!(text.get(), "");
        for len in 0..20 {
            let written: String = ('a'..).take(len).collect();
            text.set(|writer| written.chars().for_each(|c| writer.write_char(c).unwrap()));
            assert_eq!(text.get(), written[..len.min(16)]);
        }
    }

    #[test]
    fn a_character_that_is_cut_is_replaced() {
        let text = Text::<1>::empty();
        text.set(|writer| writer.push("1234567ä".as_bytes()));
        assert_eq!(text.get(), "1234567\u{fffd}");
    }
}
