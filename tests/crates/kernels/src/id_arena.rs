//! An arena with indices.

use crate::{Random, Sum};
use id_arena::{Arena, Id};

enum Tree {
    Leaf(u64),
    Pair(Id<Tree>, Id<Tree>),
}

fn total(trees: &Arena<Tree>, tree: Id<Tree>) -> u64 {
    match &trees[tree] {
        Tree::Leaf(number) => *number,
        Tree::Pair(a, b) => total(trees, *a).wrapping_mul(3) ^ total(trees, *b),
    }
}

/// Joins trees at random, and adds their leaves.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let mut trees = Arena::new();
    let mut roots: alloc::vec::Vec<_> = (0..40).map(|_| trees.alloc(Tree::Leaf(random.number()))).collect();
    while roots.len() > 1 {
        let [a, b] = [(); 2].map(|()| random.below(roots.len() as u64 - 1) as usize);
        let (a, b) = (roots.swap_remove(a), roots.swap_remove(b.saturating_sub(1)));
        roots.push(trees.alloc(Tree::Pair(a, b)));
    }
    sum.add(total(&trees, roots[0]));
    trees.iter().for_each(|(id, _)| sum.add(id.index() as u64));
    sum.finish()
}
