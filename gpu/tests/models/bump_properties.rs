//! The bump arena, used by one lane, checked against a naive model.

use crate::arena::{Arena, check_disjoint};
use crate::lane::{LANE, with_lane};
use proptest::prelude::*;
use std::collections::HashSet;

/// The address at this offset.
fn address(arena: &Arena, offset: u64) -> u64 {
    (arena.bump.base().addr() as u64).wrapping_add(offset)
}

/// The number of granules that a request takes.
fn granules(arena: &Arena, size: usize, align: usize) -> u64 {
    let padding = (align as u64).saturating_sub(arena.granule);
    (size as u64 + padding).div_ceil(arena.granule)
}

/// Sizes: small, around the limits of the fast path, and beyond the capacity.
fn sizes() -> impl Strategy<Value = usize> {
    prop_oneof![
        8 => 0..100usize,
        4 => 100..20_000usize,
        1 => (0..63u32, 0..3usize).prop_map(|(log2, off)| (1usize << log2) + off - 1),
        1 => Just(isize::MAX as usize - (2 << 20)),
    ]
}

/// Alignments up to 2 MiB. Small ones are three times as likely as all others together.
fn aligns() -> impl Strategy<Value = usize> {
    prop_oneof![3 => 0..5u32, 1 => 5..22u32].prop_map(|log2| 1 << log2)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// An arena with one counter is a cursor: the model predicts every address.
    #[test]
    fn one_counter_is_a_cursor(
        capacity in 1..100_000u64,
        granule_log2 in 0..8u32,
        requests in prop::collection::vec((sizes(), aligns()), 1..200),
    ) {
        let arena = Arena::new(capacity, granule_log2, 0);
        let mut cursor = 0;
        for (size, align) in requests {
            let got = arena.alloc(size, align);
            if size == 0 {
                prop_assert_eq!(got.map(|offset| address(&arena, offset)), Some(align as u64));
                continue;
            }
            let wanted = granules(&arena, size, align);
            let expected = (wanted <= capacity - cursor)
                .then(|| address(&arena, cursor * arena.granule).next_multiple_of(align as u64));
            prop_assert_eq!(got.map(|offset| address(&arena, offset)), expected, "{} B at {}", size, align);
            cursor += if expected.is_some() { wanted } else { 0 };
            prop_assert_eq!(arena.left(), capacity - cursor);
            prop_assert_eq!(arena.root.wasted(), 0);
        }
    }

    /// Over several counters: allocations are aligned, in bounds and disjoint. A failed allocation
    /// takes nothing. When one granule cannot be allocated, all that is left has been counted as
    /// wasted.
    #[test]
    fn several_counters_share_the_arena_exactly(
        capacity in 1..60_000u64,
        granule_log2 in 0..5u32,
        shards in 1..6u32,
        requests in prop::collection::vec((sizes(), aligns(), 0..8u32), 1..200),
    ) {
        with_lane(|| fill(capacity, granule_log2, shards, requests))?;
    }
}

/// Serves the requests (size, alignment, lane), then allocates single bytes until none is left.
fn fill(
    capacity: u64,
    granule_log2: u32,
    shards: u32,
    requests: Vec<(usize, usize, u32)>,
) -> Result<(), TestCaseError> {
    let arena = Arena::new(capacity, granule_log2, shards);
    let (mut pieces, mut granted) = (Vec::new(), 0);
    for (size, align, lane) in requests.into_iter().filter(|(size, ..)| *size > 0) {
        LANE.set(lane);
        if let Some(offset) = arena.alloc(size, align) {
            prop_assert_eq!(address(&arena, offset) % align as u64, 0);
            pieces.push((offset, size as u64));
            granted += granules(&arena, size, align);
        }
        prop_assert_eq!(granted + arena.left(), capacity);
    }
    while let Some(offset) = arena.alloc(1, 1) {
        pieces.push((offset, 1));
        granted += 1;
    }
    prop_assert_eq!(granted + arena.root.wasted(), capacity);
    check_disjoint(&arena, pieces);
    Ok(())
}

#[test]
fn equal_requests_fill_the_arena_and_the_rest_fail() {
    for (capacity, size, granule_log2) in
        [(4096, 4, 0), (4096, 4, 2), (4000, 4, 1), (1000, 1, 0), (64_000, 64, 4)]
    {
        for shards in [0, 1, 3] {
            let arena = Arena::new(capacity >> granule_log2, granule_log2, shards);
            let fits = capacity as usize / size;
            let offsets: Vec<_> = (0..2 * fits).filter_map(|_| arena.alloc(size, 1)).collect();
            let distinct: HashSet<_> = offsets.iter().collect();
            assert_eq!((offsets.len(), distinct.len()), (fits, fits), "{size} of {capacity}");
            assert!(offsets.iter().all(|offset| offset % size as u64 == 0 && *offset < capacity));
            assert_eq!((arena.left(), arena.root.wasted()), (0, 0));
        }
    }
}

#[test]
fn a_failed_request_leaves_room_for_a_smaller_one() {
    for granule_log2 in [0, 2] {
        let arena = Arena::new(4096 >> granule_log2, granule_log2, 0);
        assert_eq!(arena.alloc(4000, 1), Some(0));
        assert_eq!(arena.alloc(200, 1), None);
        assert_eq!(arena.alloc(96, 1), Some(4000));
        assert_eq!((arena.alloc(1, 1), arena.left()), (None, 0));
    }
}

#[test]
fn the_longer_remainder_of_two_leases_is_kept() {
    with_lane(|| {
        let arena = Arena::new(1 << 17, 0, 2);
        // Allocates in the first of the shards, whose leases begin with 32,768 granules.
        let alloc = |times: u32, size| assert!((0..times).all(|_| arena.alloc(size, 1).is_some()));
        let seen = || (arena.shards[0].remaining().unwrap(), arena.root.wasted());
        alloc(63, 512);
        alloc(1, 412);
        assert_eq!(seen(), (100, 0));
        // The next lease is half of what the root has left, less what is no multiple of 200.
        alloc(1, 200);
        assert_eq!(seen(), (32_600 - 200 + 100, 0));
        alloc(63, 512);
        alloc(1, 94);
        assert_eq!(seen(), (50 + 100, 0));
        alloc(1, 60);
        assert_eq!(seen(), (16_440 - 60 + 100, 50));
        // The other shard allocates from its own lease.
        LANE.set(1);
        assert_eq!(arena.alloc(1, 1), Some(32_768));
        assert_eq!((seen(), arena.bump.capacity()), ((16_480, 50), 1 << 17));
    });
}

#[test]
fn no_number_of_failed_requests_brings_memory_back() {
    /// The largest single subtraction, repeated until it would overflow the bits that count it.
    const GRANULES: usize = 1 << 9;
    const REQUESTS: usize = (1 << 29) / GRANULES + 1000;
    let arena = Arena::new(1, 0, 0);
    assert_eq!(arena.alloc(1, 1), Some(0));
    let granted = (0..REQUESTS).find_map(|_| arena.alloc(GRANULES, 1));
    assert_eq!(granted, None);
}

#[test]
fn an_alignment_of_4_gib_is_an_alignment() {
    let arena = Arena::new(1 << 30, 4, 0);
    let offset = arena.alloc(16, 1 << 32).expect("16 GiB hold two multiples of 4 GiB at least");
    assert_eq!(address(&arena, offset) % (1 << 32), 0);
}

#[test]
fn a_reset_arena_is_a_new_one() {
    let mut arena = Arena::new(5000, 4, 3);
    let run = |arena: &Arena| (1..100).map(|size| arena.alloc(7 * size, 16)).collect::<Vec<_>>();
    let first = run(&arena);
    assert_ne!(run(&arena), first);
    let fresh = Arena::new(5000, 4, 3);
    *arena.root = warpheap_device::bump::Root::from_words(fresh.root.to_words());
    for (shard, fresh) in arena.shards.iter_mut().zip(&fresh.shards) {
        *shard = warpheap_device::bump::Shard::from_words(fresh.to_words());
    }
    assert_eq!(run(&arena), first);
}
