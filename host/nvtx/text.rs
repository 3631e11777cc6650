//! Text as a tool takes it.

use std::ffi::CString;

/// compute-sanitizer accepts names of 1 to 49 characters.
const MAX_NAME: usize = 49;

/// `text` up to its first NUL.
pub(crate) fn c_string(text: &str) -> CString {
    CString::new(text.split('\0').next().unwrap_or_default()).unwrap_or_default()
}

/// `text` as a name of memory: `?` replaces each character that is not printable ASCII, and a long
/// name is cut.
pub(crate) fn memory_name(text: &str) -> CString {
    let is_accepted = |c: &char| c.is_ascii_graphic() || *c == ' ';
    let accepted = |c: char| Some(c).filter(is_accepted).unwrap_or('?');
    let name: String = text.chars().take(MAX_NAME).map(accepted).collect();
    c_string(if name.is_empty() { "?" } else { &name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_memory_are_short_and_printable() {
        let name = |text| memory_name(text).into_string().unwrap();
        assert_eq!(name("layer 3 (a~)"), "layer 3 (a~)");
        assert_eq!(name("é\0\n\u{7f}x"), "????x");
        assert_eq!((name(""), name(&"x".repeat(50))), ("?".into(), "x".repeat(49)));
    }

    #[test]
    fn text_ends_at_a_nul() {
        assert_eq!((c_string("ab"), c_string("a\0b"), c_string("")), (c"ab".into(), c"a".into(), c"".into()));
    }
}
