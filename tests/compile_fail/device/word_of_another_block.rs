//! The address of a word in shared memory is a valid number in every block.

use warpheap_device::shared::SharedWord;

pub fn use_of(word: SharedWord) -> u64 {
    word.store_relaxed(1);
    word.or_relaxed(2);
    word.and_relaxed(3);
    word.swap_relaxed(4);
    word.load_relaxed()
}

fn main() {}
