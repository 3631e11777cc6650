//! Claims and releases of the blocks of runs, and their hints.

use super::*;
use crate::heap::tests::heap::heap;

/// 256 blocks in eight words.
const SMALL: SizeClass = SizeClass::of(64);
/// Two blocks in two slabs.
const LARGE: SizeClass = SizeClass::of(16 << 10);

#[test]
fn the_free_words_of_a_run_are_counted() {
    let owned = heap(256, 1);
    let (runs, run) = (owned.core().runs(), Run { first: 3, class: SMALL, blocks: 256 });
    owned.add_run(SMALL, 3);
    let (w, mut free) = (runs.first_word(3), [0; 4]);
    for (n, words) in [8, 4, 1, 0].into_iter().enumerate() {
        for w in w + words..w + 8 {
            let old = runs.claim(w, u32::MAX);
            runs.count_claim(3, old, u32::MAX);
        }
        free[n] = runs.free_words(3);
    }
    assert_eq!(free, [8, 4, 1, 0]);
    runs.release(run, 5, u32::MAX >> 1);
    assert_eq!(runs.free_words(3), 0);
    runs.release(run, 5, 1 << 31);
    assert_eq!(runs.free_words(3), 1);
}

#[test]
fn a_release_has_more_to_do_only_if_a_hint_is_missing_or_a_block_was_free() {
    let owned = heap(256, 1);
    let (runs, run) = (owned.core().runs(), Run { first: 3, class: SMALL, blocks: 256 });
    owned.add_run(SMALL, 3);
    let (w, index) = (runs.first_word(3), owned.layout.run_index(SMALL, 3));
    let release = |bits: u32| {
        let released = runs.release(run, 0, bits);
        (released.old, released.is_unfinished, released.is_idle)
    };
    runs.claim(w, 0xff);
    assert_eq!(release(0x0f), (!0xff, false, false));
    assert_eq!(release(0x11), (!0xf0, true, false));
    runs.idle().remove_bits(0, 1 << 3);
    assert_eq!(release(0x20), (!0xe0, false, false));
    assert_eq!(release(0xc0), (!0xc0, true, true));
    runs.finish_release(run, true);
    assert_eq!(owned.hints(SMALL, 3), (true, true));
    runs.listed().remove_bits(index / 32, 1 << (index % 32));
    runs.claim(w, 1);
    assert_eq!(release(1), (!1, true, false));
    runs.finish_release(run, false);
    assert_eq!(owned.hints(SMALL, 3), (true, true));
}

#[test]
fn a_block_of_a_run_of_several_slabs_is_put_back() {
    let owned = heap(4096, 1);
    let class = SizeClass::of(512);
    let info = *owned.core().class(class);
    assert_eq!((info.slabs, info.blocks), (16, 512));
    owned.add_run_with(class, 32, &[]);
    let index = owned.layout.run_index(class, 32);
    let runs = owned.core().runs();
    runs.listed().remove_bits(index / 32, 1 << (index % 32));
    runs.idle().remove_bits(1, 1);
    // The bits of all blocks are in the words of the first slab.
    runs.put_back(runs.first_word(32) + 15, 1 << 7, 0);
    assert_eq!((owned.free_blocks(class, 32).as_slice(), runs.free_words(32)), (&[487][..], 0));
    assert_eq!(owned.hints(class, 32), (true, false));
    // Another thread claimed the rest of the word, and has not updated the count yet.
    runs.put_back(runs.first_word(32) + 15, !(1 << 7), 0);
    assert_eq!((runs.free_words(32), owned.hints(class, 32)), (1, (true, true)));
}

#[test]
fn a_claim_in_a_run_of_another_class_changes_nothing() {
    let owned = heap(256, 1);
    let (runs, info) = (owned.core().runs(), owned.core().class(LARGE));
    owned.add_run(SizeClass::of(4096), 4);
    owned.add_run_with(SMALL, 6, &[0, 1, 2, 33]);
    let before = (owned.words(SMALL, 6), runs.free_words(6), runs.free_words(4));
    for (run, w, bits) in
        [(6, 0, 0b11), (6, 0, 0b1110), (6, 1, 0b1), (6, 1, 0b10), (4, 0, 0xf0), (4, 0, 0xff)]
    {
        assert_eq!(runs.claim_some(run, LARGE, info, w, bits), 0);
        let now = (owned.words(SMALL, 6), runs.free_words(6), runs.free_words(4));
        assert_eq!((now, runs.bits(runs.first_word(4)).load_relaxed()), (before.clone(), 0xf));
    }
    assert_eq!(runs.claim_some(6, SMALL, owned.core().class(SMALL), 0, 0b1011), 0b11);
}
