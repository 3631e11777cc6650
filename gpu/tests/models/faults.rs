//! Fault records: the check that found the fault, and the words that it saw, first and again.

use crate::heap::OwnedHeap;
use core::alloc::Layout;
use core::cell::Cell;
use std::ptr::NonNull;
use std::time::{Duration, Instant};
use warpheap_device::fault::{FAULT_ENTRIES, Fault, FaultCheck, FaultKind, FaultLog, SeenWords};
use warpheap_device::heap::Heap;
use warpheap_device::heap::class::SizeClass;
use warpheap_device::thread;

fn words(word: u64, entry: u64) -> SeenWords {
    SeenWords { word: Some(word), entry: Some(entry) }
}

/// A block that is freed, and the freed address as an offset from it.
fn free(heap: &Heap, block: NonNull<u8>, offset: usize) {
    let block = NonNull::new(block.as_ptr().wrapping_add(offset)).unwrap();
    // SAFETY: no thread uses the block.
    unsafe { heap.free(block) };
}

#[test]
fn a_heap_records_which_check_found_a_fault_and_what_it_saw() {
    let owned = OwnedHeap::new(1 << 20, 1);
    let heap = &*owned.heap;
    let slab = owned.layout.slab_bytes() as usize;
    let alloc = |bytes| heap.alloc(Layout::from_size_align(bytes, 16).unwrap()).unwrap();
    // Two live blocks keep the run of the third from becoming free.
    let [_, _, small] = [16, 16, 16].map(alloc);
    let large = alloc(4 * slab);
    free(heap, small, 4);
    free(heap, large, slab);
    free(heap, large, 1 << 20);
    (0..2).for_each(|_| free(heap, small, 0));
    (0..2).for_each(|_| free(heap, large, 0));
    let faults: Vec<Fault> = owned.faults.faults().collect();
    let [inside, inside_large, outside, bit, entry] = faults[..] else { panic!("{faults:#?}") };
    let free_entry = u64::from(Heap::free_entry());
    for (fault, check, kind) in [
        (inside, FaultCheck::NotAStart, FaultKind::InteriorFree),
        (inside_large, FaultCheck::NotAStart, FaultKind::InteriorFree),
        (outside, FaultCheck::Outside, FaultKind::ForeignFree),
        (bit, FaultCheck::BitWasSet, FaultKind::DoubleFree),
        (entry, FaultCheck::EntryWasFree, FaultKind::DoubleFree),
    ] {
        assert_eq!((fault.check, fault.kind), (check, kind), "{fault:?}");
        assert_eq!(fault.seen, fault.later, "no other thread wrote the words: {fault:?}");
        assert!(!check.to_string().is_empty());
    }
    assert_eq!(outside.seen, SeenWords::NONE);
    assert_eq!(entry.seen, SeenWords { entry: Some(free_entry), word: None });
    assert!(inside.seen.word.is_none() && inside.seen.entry.is_some_and(|entry| entry != free_entry));
    assert!(bit.seen.word.is_some_and(|word| word >> (bit.detail % 32) & 1 == 1), "{bit:?}");
    assert_eq!(bit.seen.entry, inside.seen.entry);
    assert!(faults.windows(2).all(|pair| pair[0].nanos <= pair[1].nanos), "{faults:#?}");
    owned.check(&[(SizeClass::of(16).0, 2)].into());
}

/// The words are read again after a millisecond, for the faults that are kept.
#[test]
fn words_are_read_again_later_unless_the_log_is_full() {
    let log = FaultLog::default();
    let began = Instant::now();
    let read_at = Cell::new(Duration::ZERO);
    log.record_words(
        FaultCheck::BitWasSet,
        1,
        2,
        || words(3, 4),
        || {
            read_at.set(began.elapsed());
            words(5, 6)
        },
    );
    let fault = log.faults().next().unwrap();
    assert_eq!((fault.seen, fault.later), (words(3, 4), words(5, 6)));
    assert!(read_at.get() >= Duration::from_millis(1) && fault.nanos <= thread::global_timer_nanos());
    (1..FAULT_ENTRIES).for_each(|_| log.record(FaultCheck::NoMemory, 0, 7));
    log.record_words(
        FaultCheck::BitWasSet,
        1,
        2,
        || words(3, 4),
        || panic!("a thread without an entry waited"),
    );
    assert_eq!(log.count(), FAULT_ENTRIES as u64 + 1);
    let faults: Vec<_> = log.faults().collect();
    assert_eq!(faults.len(), FAULT_ENTRIES);
    assert!(
        faults[1..]
            .iter()
            .all(|fault| fault.kind == FaultKind::OutOfMemory && fault.later == SeenWords::NONE)
    );
}
