//! One collection per thread: `Vec`, `BTreeMap` and `String`, each filled item by item from empty.
//!
//! The functions also run on the host, which computes the expected results with them.

extern crate alloc;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::{kernel, thread};

/// A sum in which the order of the items matters.
fn in_order(items: impl Iterator<Item = u64>) -> u64 {
    items.fold(0, |sum, item| sum.wrapping_mul(31).wrapping_add(item))
}

/// Item `k` of thread `i`. The items of a thread differ, and are not in order.
fn item(i: u32, k: u32) -> u64 {
    u64::from(i.wrapping_add(k.wrapping_mul(0x9e37_79b1)))
}

/// Pushes `count` numbers to a `Vec` and sums them.
pub fn sum_of_vec(i: u32, count: u32) -> u64 {
    let mut numbers = Vec::new();
    (0..count).for_each(|k| numbers.push(item(i, k)));
    in_order(numbers.iter().copied())
}

/// Inserts `count` keys to a `BTreeMap` and sums the entries in the order of the keys.
pub fn sum_of_map(i: u32, count: u32) -> u64 {
    let mut map = BTreeMap::new();
    (0..count).for_each(|k| *map.entry(item(i, k)).or_insert(0_u64) += u64::from(k));
    in_order(map.iter().map(|(key, value)| key ^ value))
}

/// Pushes `count` letters to a `String` and sums its bytes.
pub fn sum_of_string(i: u32, count: u32) -> u64 {
    let mut text = String::new();
    (0..count).for_each(|k| text.push(char::from(b'a' + (item(i, k) % 26) as u8)));
    in_order(text.bytes().map(u64::from))
}

/// Writes the sum of thread `i`.
fn write(sums: DeviceSlice<u64>, count: u32, sum: fn(u32, u32) -> u64) {
    let i = thread::index_1d();
    // SAFETY: each thread writes its own sum, in live memory by the kernels' callers.
    unsafe { sums.set(i.into(), sum(i, count)) };
}

kernel! {
    /// Every thread pushes `count` numbers to a `Vec` and writes their sum.
    ///
    /// # Safety
    /// `sums` is live and nothing else accesses it.
    pub unsafe fn collect_vec(count: u32, sums: DeviceSlice<u64>) {
        write(sums, count, sum_of_vec);
    }

    /// Every thread inserts `count` keys to a `BTreeMap` and writes the sum of its entries.
    ///
    /// # Safety
    /// `sums` is live and nothing else accesses it.
    pub unsafe fn collect_map(count: u32, sums: DeviceSlice<u64>) {
        write(sums, count, sum_of_map);
    }

    /// Every thread pushes `count` letters to a `String` and writes the sum of its bytes.
    ///
    /// # Safety
    /// `sums` is live and nothing else accesses it.
    pub unsafe fn collect_string(count: u32, sums: DeviceSlice<u64>) {
        write(sums, count, sum_of_string);
    }
}
