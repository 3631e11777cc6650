//! What compilers and `core` leave to a library: comparisons of bytes and texts, functions of C,
//! and conversions of 128-bit integers.

extern crate alloc;

use super::{checksum, next};
use alloc::string::String;
use alloc::vec::Vec;
use core::ffi::CStr;

/// Texts of up to 40 bytes that often begin with the same letters.
fn texts(count: u32, state: &mut u64) -> Vec<String> {
    let text = |_| {
        let (len, letters) = (next(state) % 41, next(state));
        (0..len).map(|i| if i % 9 < 8 { 'a' } else { char::from(b'a' + (letters >> i & 3) as u8) }).collect()
    };
    (0..count).map(text).collect()
}

/// Compares each of `count` texts with the others: `==`, `cmp`, `starts_with` and `contains`. The
/// same for parts of them, which are not aligned. Then sorts them.
pub fn compared(count: u32, seed: u64) -> u64 {
    let mut state = seed;
    let mut all = texts(count, &mut state);
    let mut sum = 0;
    for a in &all {
        for b in &all {
            let parts = [a, b].map(|text| &text.as_bytes()[next(&mut state) as usize % (text.len() + 1)..]);
            let bits = [a == b, a.starts_with(b.as_str()), a.contains(b.as_str()), parts[0] == parts[1]];
            let orders = [a.cmp(b), parts[0].cmp(parts[1])];
            sum = checksum(
                bits.map(u64::from).into_iter().chain(orders.map(|order| order as u64)).chain([sum]),
            );
        }
    }
    all.sort_unstable();
    checksum(all.iter().flat_map(|text| text.bytes().map(u64::from).chain([0])).chain([sum]))
}

unsafe extern "C" {
    fn memset(to: *mut u8, value: i32, len: usize) -> *mut u8;
    fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8;
    fn memmove(to: *mut u8, from: *const u8, len: usize) -> *mut u8;
    fn memcmp(left: *const u8, right: *const u8, len: usize) -> i32;
    fn bcmp(left: *const u8, right: *const u8, len: usize) -> i32;
}

/// Calls functions of C `count` times on two arrays, at pseudo-random places.
pub fn called(count: u32, seed: u64) -> u64 {
    const LEN: usize = 64;
    let (mut state, mut bytes, mut sum) = (seed, [[b'a'; LEN + 1]; 2], 0);
    for _ in 0..count {
        let random = next(&mut state);
        let [from, to] = [random, random >> 8].map(|bits| bits as usize % LEN);
        let (len, value) = ((random >> 16) as usize % (LEN - from.max(to)), (random >> 24) as i32 % 3);
        let [first, second] = bytes.each_mut().map(|array| array.as_mut_ptr());
        let (at, source) = (first.wrapping_add(to), second.wrapping_add(from).cast_const());
        let other = first.wrapping_add(from).cast_const();
        let result = match random >> 40 & 3 {
            // SAFETY: `len` bytes from `to` on are in the array.
            0 => unsafe { memset(at, value, len) },
            // SAFETY: also from `from` on, and the arrays are different ones.
            1 => unsafe { memcpy(at, source, len) },
            // SAFETY: as for `memset`. The ranges may overlap.
            _ => unsafe { memmove(at, other, len) },
        };
        // SAFETY: as for `memcpy`.
        let order = unsafe { memcmp(at, source, len) }.signum();
        // SAFETY: as for `memcpy`.
        let differs = unsafe { bcmp(at, source, len) } != 0;
        bytes[0][LEN] = 0;
        // SAFETY: the last byte is zero.
        let text = unsafe { CStr::from_ptr(bytes[0].as_ptr().wrapping_add(to).cast()) };
        let values =
            [u64::from(result == at), order as u64, differs.into(), text.to_bytes().len() as u64, sum];
        sum = checksum(values);
    }
    checksum(bytes.concat().into_iter().map(u64::from).chain([sum]))
}

/// Products, quotients and shifts of `count` pairs of 128-bit integers, and their conversions to
/// floating-point numbers.
pub fn wide(count: u32, seed: u64) -> u64 {
    let mut state = seed;
    let mut number = || {
        let (high, low, shift) = (next(&mut state), next(&mut state), next(&mut state) % 128);
        match low % 4 {
            // Near a power of two, where conversions round up, to even, or to infinity.
            0 => (1_u128 << shift).wrapping_sub(u128::from(high % 3)) << ((low >> 2) % 3),
            1 => u128::MAX << shift,
            _ => (u128::from(high) << 64 | u128::from(low)) >> shift,
        }
    };
    checksum((0..count).flat_map(|_| {
        let (a, b) = (number(), number() | 1);
        let signed = a.cast_signed().wrapping_div(b.cast_signed());
        let results = [a.wrapping_mul(b), a / b, a % b, a << (b % 128), signed.cast_unsigned()];
        let halves = results.into_iter().flat_map(|result| [result as u64, (result >> 64) as u64]);
        let floats = [(a as f64).to_bits(), (a.cast_signed() as f64).to_bits()];
        let singles = [(a as f32).to_bits(), (a.cast_signed() as f32).to_bits()].map(u64::from);
        halves.chain(floats).chain(singles)
    }))
}
