//! Sets of numbers, by one lane.

use super::*;
use crate::lanes::Group;
use std::collections::BTreeSet;
use std::vec::Vec;

fn with_set(slabs: u32, run: impl FnOnce(IndexSet)) {
    let len = slabs.div_ceil(WORD_BITS);
    let words: Vec<AtomicU32> = (0..len + len.div_ceil(WORD_BITS)).map(|_| AtomicU32::new(0)).collect();
    // SAFETY: the words live until the end.
    run(unsafe { IndexSet::new(words.as_ptr(), len) });
}

#[test]
fn what_goes_in_comes_out_once() {
    with_set(5000, |set| {
        let mut inside = BTreeSet::new();
        for slab in (0..5000).step_by(7) {
            set.note(slab);
            set.note(slab);
            inside.insert(slab);
        }
        let mut from = 77;
        while let Some(slab) = set.next(from) {
            assert!(set.remove(slab) && inside.remove(&slab));
            from = slab / 32;
        }
        assert!(inside.is_empty() && set.next_word(0).is_none());
    });
}

fn claim(set: IndexSet, from: u32, least: u32, most: u32) -> Run {
    set.claim_run_together(Group::alone(), from, least, most)
}

#[test]
fn runs_join_over_words() {
    with_set(400, |set| {
        set.insert_run(Run { first: 20, len: 100 });
        assert_eq!(set.len_at(20, 400), 100);
        assert_eq!(claim(set, 0, 30, 90), Run { first: 20, len: 90 });
        assert_eq!(claim(set, 0, 11, 90), Run::NONE);
        assert_eq!(claim(set, 0, 1, 90), Run { first: 110, len: 10 });
        assert_eq!(claim(set, 0, 1, 1), Run::NONE);
        set.insert_run(Run { first: 0, len: 400 });
        assert_eq!(claim(set, 3, 32, 400), Run { first: 96, len: 304 });
        assert_eq!(claim(set, 3, 1, 400), Run::NONE);
        assert_eq!(claim(set, 0, 32, 400), Run { first: 0, len: 96 });
    });
}

#[test]
fn what_is_too_short_is_passed_over_and_stays() {
    with_set(192, |set| {
        set.insert_run(Run { first: 0, len: 3 });
        set.insert_run(Run { first: 5, len: 6 });
        set.insert_run(Run { first: 28, len: 8 });
        set.insert_run(Run { first: 100, len: 16 });
        assert_eq!(claim(set, 0, 4, 5), Run { first: 5, len: 5 });
        assert_eq!(claim(set, 0, 8, 64), Run { first: 28, len: 8 });
        assert_eq!(claim(set, 0, 16, 64), Run { first: 100, len: 16 });
        assert_eq!((set.len_at(0, 9), set.len_at(10, 9)), (3, 1));
        assert_eq!(set.longest_together(Group::alone()), 3);
        set.insert_run(Run { first: 60, len: 70 });
        assert_eq!(set.longest_together(Group::alone()), 32);
    });
}
