//! Collections with a fixed capacity.

use crate::{Random, Sum};
use core::fmt::Write;
use heapless::binary_heap::{BinaryHeap, Min};
use heapless::index_map::FnvIndexMap;
use heapless::{Deque, String, Vec};

/// A vector, a queue, a priority queue, a map and a text.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let mut vector: Vec<u64, 16> = Vec::new();
    let mut queue: Deque<u64, 8> = Deque::new();
    let mut heap: BinaryHeap<u64, Min, 32> = BinaryHeap::new();
    let mut map: FnvIndexMap<u64, u64, 32> = FnvIndexMap::new();
    for i in 0..50 {
        let number = random.below(40);
        sum.add(vector.push(number).is_err().into());
        if queue.push_back(number).is_err() {
            sum.add(queue.pop_front().unwrap_or(0));
        }
        if heap.push(number).is_err() {
            sum.add(heap.pop().unwrap_or(0));
        }
        match map.insert(number, i) {
            Ok(old) => sum.add(old.unwrap_or(99)),
            Err((key, _)) => sum.add(map.swap_remove(&(key / 2)).unwrap_or(98)),
        }
    }
    let mut text: String<64> = String::new();
    write!(text, "{vector:?}").unwrap_or_else(|_| sum.add(1));
    sum.bytes(text.as_bytes());
    while let Some(number) = heap.pop() {
        sum.add(number);
    }
    map.iter().for_each(|(key, value)| sum.add(key << 32 | value));
    sum.finish()
}
