//! Counts what a regular expression finds in a log, with the crate `regex-automata` as it is on
//! crates.io.
//!
//! [`count`] is plain Rust. The host calls it in its threads, and the kernel [`count_all`] in those
//! of a GPU.

#![no_std]

extern crate alloc;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;
use regex_automata::dfa::dense::DFA;
use regex_automata::dfa::regex::{Builder, Regex};
use warpheap_device::kernel::{DeviceData, DeviceSlice};
use warpheap_device::{kernel, thread};

warpheap_device::global_heap!();

/// What was found in a part of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Found {
    /// Number of matches.
    pub matches: u32,
    /// Number of different matches.
    pub different: u32,
    /// Sum over the different matches: a hash of the text, times how often it was found.
    pub digest: u64,
}

// SAFETY: two `u32` and a `u64`, without padding.
unsafe impl DeviceData for Found {}

/// Counts each different text among the `matches`, which are ranges of `log`.
pub fn count(log: &[u8], matches: impl Iterator<Item = Range<usize>>) -> Found {
    let mut counts = BTreeMap::<Vec<u8>, u32>::new();
    for text in matches.map(|range| &log[range]) {
        match counts.get_mut(text) {
            Some(count) => *count += 1,
            None => _ = counts.insert(text.into(), 1),
        }
    }
    let mut found = Found::default();
    for (text, count) in counts {
        found.matches += count;
        found.different += 1;
        found.digest = found.digest.wrapping_add(hash(&text).wrapping_mul(count.into()));
    }
    found
}

/// FNV-1a.
fn hash(text: &[u8]) -> u64 {
    text.iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// A compiled regular expression in memory of the caller.
pub type Search<'a> = Regex<DFA<&'a [u32]>>;

/// The regular expression of two automata: `forwards` finds the end of a match, and `backwards` its
/// start. `None` if they are not aligned to 4 bytes.
///
/// # Safety
/// They are those of one `Regex`, as `DFA::to_bytes_native_endian` writes them, without its
/// padding.
pub unsafe fn search<'a>(forwards: &'a [u8], backwards: &'a [u8]) -> Option<Search<'a>> {
    // SAFETY: the caller's promise.
    let (forwards, _) = unsafe { DFA::from_bytes_unchecked(forwards) }.ok()?;
    // SAFETY: the caller's promise.
    let (backwards, _) = unsafe { DFA::from_bytes_unchecked(backwards) }.ok()?;
    Some(Builder::new().build_from_dfas(forwards, backwards))
}

kernel! {
    /// Thread `i` counts the matches in part `i` of `log`, which ends at `ends[i]`.
    ///
    /// # Safety
    /// The buffers are live. `forwards` and `backwards` are as [`search`] requires. `ends` ascends
    /// up to the length of `log`. Nothing writes to these, and nothing else accesses `found`.
    pub unsafe fn count_all(
        log: DeviceSlice<u8>,
        ends: DeviceSlice<u32>,
        forwards: DeviceSlice<u8>,
        backwards: DeviceSlice<u8>,
        found: DeviceSlice<Found>,
    ) {
        let i = u64::from(thread::index_1d());
        // SAFETY: the caller's promise, also below.
        let (log, ends) = (unsafe { slice(log) }, unsafe { slice(ends) });
        // SAFETY: as above.
        let (forwards, backwards) = (unsafe { slice(forwards) }, unsafe { slice(backwards) });
        let Some(end) = ends.get(i as usize) else { return };
        let start = i.checked_sub(1).map_or(0, |before| ends[before as usize]);
        // SAFETY: the caller's promise.
        let Some(search) = (unsafe { search(forwards, backwards) }) else { return };
        let part = &log[start as usize..*end as usize];
        let counted = count(part, search.find_iter(part).map(|found| found.range()));
        // SAFETY: each thread writes its own element.
        unsafe { found.set(i, counted) };
    }
}

/// # Safety
/// The buffer is live for `'a`, and nothing writes to it.
unsafe fn slice<'a, T: DeviceData>(buffer: DeviceSlice<T>) -> &'a [T] {
    // SAFETY: the caller's promise.
    unsafe { core::slice::from_raw_parts(buffer.as_ptr(), buffer.len() as usize) }
}
