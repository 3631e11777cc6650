//! An arena of one type, with references between its values.

use crate::{Random, Sum};
use core::cell::Cell;
use typed_arena::Arena;

struct Node<'a> {
    number: u64,
    next: Cell<Option<&'a Node<'a>>>,
}

/// Links nodes in a cycle, and follows it.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let arena = Arena::new();
    let first: &Node = arena.alloc(Node { number: random.number(), next: Cell::new(None) });
    let mut last = first;
    for _ in 0..100 {
        let node = arena.alloc(Node { number: random.number(), next: Cell::new(Some(first)) });
        last.next.set(Some(node));
        last = node;
    }
    let mut node = first;
    for _ in 0..250 {
        sum.add(node.number);
        node = node.next.get().unwrap_or(first);
    }
    sum.add(arena.len() as u64);
    let texts = Arena::new();
    let text: &str = texts.alloc_str(&random.text(30));
    sum.bytes(text.as_bytes());
    sum.finish()
}
