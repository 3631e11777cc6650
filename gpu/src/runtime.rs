//! The C functions that `core`, `alloc`, LLVM and linked crates call: comparisons of `str` and
//! slices call `memcmp`, and `CStr::from_ptr` calls `strlen`. On other targets a C library has
//! them.
//!
//! On a GPU the symbols are weak: a definition in another crate of the kernels takes precedence.
//! `warpheap-build` removes those that nothing names. No body becomes a call of itself: LLVM knows
//! no library functions on a GPU.

/// Compares two sequences of `len` bytes. The sign of the result is that of the first difference.
/// Where both addresses are multiples of eight, it reads eight bytes at once.
///
/// # Safety
/// `len` bytes are readable at both addresses.
#[inline(always)]
unsafe fn compare(left: *const u8, right: *const u8, len: usize) -> i32 {
    const WORD: usize = size_of::<u64>();
    let mut i = 0;
    while i < len {
        let places = [left, right].map(|start| start.wrapping_add(i));
        let is_word = len - i >= WORD && places.iter().all(|place| place.addr().is_multiple_of(WORD));
        let [a, b] = places.map(|place| {
            if is_word {
                // SAFETY: aligned, and the word ends before `len`, by the caller's promise.
                unsafe { place.cast::<u64>().read() }
            } else {
                // SAFETY: `i < len`, by the caller's promise.
                unsafe { place.read() }.into()
            }
        });
        if a != b {
            // The first byte of a word is the least significant one.
            let shift = (a ^ b).trailing_zeros() / u8::BITS * u8::BITS;
            return i32::from((a >> shift) as u8) - i32::from((b >> shift) as u8);
        }
        i += if is_word { WORD } else { 1 };
    }
    0
}

/// The number of bytes before the first zero.
///
/// # Safety
/// All bytes up to the first zero are readable.
#[inline(always)]
unsafe fn length(text: *const u8) -> usize {
    let mut len = 0;
    // SAFETY: no byte before this one is zero, so it is readable by the caller's promise.
    while unsafe { text.wrapping_add(len).read() } != 0 {
        len += 1;
    }
    len
}

/// The symbols, with the signatures and contracts of C.
#[cfg(target_arch = "nvptx64")]
mod symbols {
    use core::ptr;

    #[unsafe(no_mangle)]
    #[linkage = "weak"]
    unsafe extern "C" fn memcmp(left: *const u8, right: *const u8, len: usize) -> i32 {
        // SAFETY: the caller's promise.
        unsafe { super::compare(left, right, len) }
    }

    #[unsafe(no_mangle)]
    #[linkage = "weak"]
    unsafe extern "C" fn bcmp(left: *const u8, right: *const u8, len: usize) -> i32 {
        // SAFETY: the caller's promise.
        unsafe { super::compare(left, right, len) }
    }

    #[unsafe(no_mangle)]
    #[linkage = "weak"]
    unsafe extern "C" fn strlen(text: *const u8) -> usize {
        // SAFETY: the caller's promise.
        unsafe { super::length(text) }
    }

    // LLVM has no call of these three for a GPU: it writes loops. Other crates may call them.
    #[unsafe(no_mangle)]
    #[linkage = "weak"]
    unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { ptr::copy_nonoverlapping(from, to, len) };
        to
    }

    #[unsafe(no_mangle)]
    #[linkage = "weak"]
    unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { ptr::copy(from, to, len) };
        to
    }

    #[unsafe(no_mangle)]
    #[linkage = "weak"]
    unsafe extern "C" fn memset(to: *mut u8, value: i32, len: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { ptr::write_bytes(to, value as u8, len) };
        to
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn bytes_are_compared_as_core_compares_them() {
        // Two buffers that are aligned to eight bytes, and starts in them.
        let mut words = [[0x5a5a_5a5a_5a5a_5a5a_u64; 8]; 2];
        let bytes = |words: &[u64; 8]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        for starts in [[0, 0], [3, 3], [0, 8], [8, 16], [1, 2], [5, 0]] {
            for len in 0..40 {
                for place in (0..=len).rev() {
                    // A difference at `place`, in either direction; none at `len`.
                    for value in [0, 0xff] {
                        let at = starts[1] + place;
                        let before = words[1];
                        if place < len {
                            let shift = at % 8 * 8;
                            words[1][at / 8] = words[1][at / 8] & !(0xff << shift) | value << shift;
                        }
                        let all = [bytes(&words[0]), bytes(&words[1])];
                        let [a, b] = [0, 1].map(|i| &all[i][starts[i]..starts[i] + len]);
                        let start = |i: usize| words[i].as_ptr().cast::<u8>().wrapping_add(starts[i]);
                        // SAFETY: both buffers have the bytes.
                        let result = unsafe { compare(start(0), start(1), len) };
                        assert_eq!(result.cmp(&0), a.cmp(b), "{starts:?} {len} {place} {value}");
                        words[1] = before;
                    }
                }
            }
        }
    }

    #[test]
    fn a_text_ends_at_the_first_zero() {
        for text in [c"", c"a", c"many letters, more than a word has"] {
            // SAFETY: the text ends with a zero.
            assert_eq!(unsafe { length(text.as_ptr().cast()) }, text.to_bytes().len());
        }
    }
}
