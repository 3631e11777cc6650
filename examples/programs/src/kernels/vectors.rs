//! Collections in every thread: `Vec`, `Box`, `String`, `BTreeMap` and `Rc`.

extern crate alloc;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::{kernel, thread};

/// The size in bytes of a text that a thread writes. Shorter texts are padded with zeros. No number
/// below 2^32 needs more.
pub const TEXT_BYTES: usize = 64;

/// Numbers in one part of a version of a list.
pub const PART: u32 = 8;

/// The prime factors of `n` in ascending order, with multiplicity.
fn factors(mut n: u64) -> Box<[u64]> {
    let mut all = Vec::new();
    let mut divisor = 2;
    // The divisors grow up to the square root of the remaining number.
    while divisor * divisor <= n {
        while n.is_multiple_of(divisor) {
            all.push(divisor);
            n /= divisor;
        }
        divisor += if divisor == 2 { 1 } else { 2 };
    }
    if n > 1 {
        all.push(n);
    }
    all.into_boxed_slice()
}

fn push_number(text: &mut String, mut n: u64) {
    let mut digits = Vec::new();
    // One digit per iteration.
    while n >= 10 {
        digits.push((n % 10) as u8);
        n /= 10;
    }
    digits.push(n as u8);
    text.extend(digits.iter().rev().map(|digit| char::from(b'0' + digit)));
}

/// A factorisation as text: `2^3*5`.
fn product(factors: &[u64]) -> String {
    let mut powers = BTreeMap::new();
    for factor in factors {
        *powers.entry(*factor).or_insert(0_u64) += 1;
    }
    let mut text = String::new();
    for (factor, power) in powers {
        if !text.is_empty() {
            text.push('*');
        }
        push_number(&mut text, factor);
        if power > 1 {
            text.push('^');
            push_number(&mut text, power);
        }
    }
    text
}

/// One version of a list of numbers. Versions share the parts that did not change between them.
#[derive(Clone, Default)]
struct Version {
    parts: Vec<Rc<Vec<u32>>>,
}

impl Version {
    /// The list with `number` appended: only the last part differs.
    fn with(&self, number: u32) -> Version {
        let mut next = self.clone();
        match next.parts.last_mut() {
            Some(last) if last.len() < PART as usize => Rc::make_mut(last).push(number),
            _ => next.parts.push(Rc::new(Vec::from([number]))),
        }
        next
    }

    fn sum(&self) -> u64 {
        self.parts.iter().flat_map(|part| part.iter()).map(|number| u64::from(*number)).sum()
    }
}

kernel! {
    /// Thread `i` writes the factorisation of `first + i` to text `i`.
    ///
    /// # Safety
    /// `texts` is live and nothing else accesses it.
    pub unsafe fn write_factors(first: u64, texts: DeviceSlice<[u8; TEXT_BYTES]>) {
        let i = u64::from(thread::index_1d());
        if i >= texts.len() {
            return;
        }
        let product = product(&factors(first + i));
        let mut text = [0; TEXT_BYTES];
        for (to, from) in text.iter_mut().zip(product.bytes()) {
            *to = from;
        }
        // SAFETY: each thread writes its own text.
        unsafe { texts.set(i, text) };
    }

    /// Thread `i` appends the first `i % limit` multiples of `i` to a list, keeps every version of
    /// the list, and writes the sum of the sums of all versions.
    ///
    /// # Safety
    /// `sums` is live and nothing else accesses it.
    pub unsafe fn sum_versions(limit: u32, sums: DeviceSlice<u64>) {
        let i = thread::index_1d();
        if u64::from(i) >= sums.len() {
            return;
        }
        let mut versions = Vec::from([Version::default()]);
        for k in 0..i % limit {
            let next = versions.last().map(|version| version.with(i.wrapping_mul(k)));
            versions.extend(next);
        }
        let sum = versions.iter().map(Version::sum).sum();
        // SAFETY: each thread writes its own sum.
        unsafe { sums.set(i.into(), sum) };
    }
}
