//! Direct recursion: two functions that call each other, and a binary tree.

extern crate alloc;

use super::{checksum, next};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// With a loop around the call, whose count differs between threads.
#[inline(never)]
fn even(depth: u32, number: u64) -> u64 {
    let Some(below) = depth.checked_sub(1) else { return number };
    let mut sum = number;
    for i in 0..number % 3 {
        sum = sum.wrapping_add(odd(below / (i as u32 + 1), number.rotate_left(i as u32 + 3)));
    }
    sum
}

#[inline(never)]
fn odd(depth: u32, number: u64) -> u64 {
    let mut mixed = number;
    let mut left = number % 7;
    while left > 0 {
        mixed = mixed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ left;
        left -= 1;
    }
    match depth {
        0 => mixed,
        _ if mixed & 1 == 0 => even(depth - 1, mixed),
        _ => even(depth - 1, mixed ^ number).wrapping_add(mixed),
    }
}

/// The result of two functions that call each other up to `depth` levels deep.
pub fn mutual(depth: u32, seed: u64) -> u64 {
    let mut state = seed;
    (0..8).fold(0, |sum, _| even(depth, sum ^ next(&mut state)))
}

/// A binary search tree.
#[derive(Default)]
struct Tree {
    root: Option<Box<Branch>>,
}

struct Branch {
    key: u64,
    count: u32,
    left: Tree,
    right: Tree,
}

impl Tree {
    /// Recursive, to the depth of the tree.
    fn insert(&mut self, key: u64) {
        match &mut self.root {
            None => {
                self.root =
                    Some(Box::new(Branch { key, count: 1, left: Tree::default(), right: Tree::default() }))
            }
            Some(branch) if key < branch.key => branch.left.insert(key),
            Some(branch) if key > branch.key => branch.right.insert(key),
            Some(branch) => branch.count += 1,
        }
    }

    fn depth(&self) -> u32 {
        self.root.as_ref().map_or(0, |branch| 1 + branch.left.depth().max(branch.right.depth()))
    }

    /// Appends the keys in order, each as often as it was inserted.
    fn collect(&self, keys: &mut Vec<u64>) {
        let Some(branch) = &self.root else { return };
        branch.left.collect(keys);
        for _ in 0..branch.count {
            keys.push(branch.key);
        }
        branch.right.collect(keys);
    }
}

/// The checksum of a tree of `count` numbers: its depth and the numbers in order. The tree is
/// dropped recursively.
pub fn tree(count: u32, seed: u64) -> u64 {
    let (mut state, mut tree, mut keys) = (seed, Tree::default(), Vec::new());
    for _ in 0..count {
        tree.insert(next(&mut state) % (u64::from(count) * 2));
    }
    tree.collect(&mut keys);
    checksum(keys.into_iter().chain([tree.depth().into()]))
}
