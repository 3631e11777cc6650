//! A call, and its arguments, which are picked from a list of limits and from earlier results.

use super::{Block, Kind, State, check, destroy};
use crate::bump::*;
use crate::call::wh_string_free;
use crate::device::{wh_backend, wh_device, wh_device_library};
use crate::freelist::*;
use crate::heap::*;
use crate::pool::*;
use crate::status::wh_status::{self, WH_OK};
use crate::status::wh_status_name;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut, without_provenance_mut};

/// Calls a function whose results are null, misaligned or valid, on the CPU.
macro_rules! c {
    ($function:ident($($argument:expr),*)) => {{
        // SAFETY: each result and struct is null, misaligned or valid, the CPU has no contexts and
        // raw streams, no kernel uses a pool, and addresses of no block or string are errors.
        unsafe { $function($($argument),*) }
    }};
}

/// The numbers of functions in [`Call::make`].
const FUNCTIONS: u8 = 32;

/// Sizes, counts and alignments. Those between 2 MiB and 2^50 would use the memory of the machine.
const NUMBERS: &[u64] = &[
    0,
    1,
    2,
    3,
    7,
    8,
    16,
    24,
    64,
    100,
    255,
    256,
    512,
    4096,
    4097,
    65535,
    65536,
    65537,
    (1 << 20) - 1,
    1 << 20,
    (1 << 20) + 1,
    2 << 20,
    1 << 50,
    1 << 62,
    (1 << 63) - 1,
    1 << 63,
    u64::MAX - 4095,
    u64::MAX - 1,
    u64::MAX,
];

/// Where a result goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Valid,
    Null,
    Misaligned,
}

#[derive(Clone, Debug)]
pub struct Call {
    function: u8,
    /// Picks a pool, a block or a string of an earlier call.
    pick: Index,
    other: Index,
    /// Whether the pick is used, or else 0, a number, or one beside it.
    validity: u8,
    numbers: [u64; 4],
    place: Place,
    /// Whether the struct has its right size, and the backend exists.
    is_versioned: bool,
    backend: i32,
}

pub fn call() -> impl Strategy<Value = Call> {
    let place = prop_oneof![10 => Just(Place::Valid), 1 => Just(Place::Null), 1 => Just(Place::Misaligned)];
    let backend =
        prop_oneof![20 => Just(wh_backend::WH_CPU as i32), 1 => select(&[-1, 2, i32::MAX, i32::MIN][..])];
    let numbers = [select(NUMBERS), select(NUMBERS), select(NUMBERS), select(NUMBERS)];
    let picks = (any::<Index>(), any::<Index>(), 0..12_u8);
    (0..FUNCTIONS, picks, numbers, place, prop::bool::weighted(0.95), backend).prop_map(
        |(function, (pick, other, validity), numbers, place, is_versioned, backend)| Call {
            function,
            pick,
            other,
            validity,
            numbers,
            place,
            is_versioned,
            backend,
        },
    )
}

/// A place for a result: two values, so that the second half of the first is misaligned.
struct Slot<T>([MaybeUninit<T>; 2]);

impl<T: Copy> Slot<T> {
    fn new(initial: T) -> Slot<T> {
        Slot([MaybeUninit::new(initial); 2])
    }

    fn at(&mut self, place: Place) -> *mut T {
        match place {
            Place::Valid => self.0.as_mut_ptr().cast(),
            Place::Null => null_mut(),
            Place::Misaligned => self.0.as_mut_ptr().cast::<T>().wrapping_byte_add(1),
        }
    }

    fn value(&self) -> T {
        // SAFETY: `new` initialised it.
        unsafe { self.0[0].assume_init() }
    }
}

impl Call {
    /// A pool of any kind, live or not, or none.
    fn owner(&self, state: &State, kind: Kind) -> u64 {
        let meant: Vec<_> = state.owners.iter().filter(|owner| owner.kind == kind).collect();
        match self.validity {
            0 => self.numbers[3],
            1 if !state.owners.is_empty() => self.pick.get(&state.owners).id,
            _ if meant.is_empty() => 0,
            _ => self.pick.get(&meant).id,
        }
    }

    /// An address: of a block of that pool, of any block, inside or beside one, or none.
    fn address(&self, state: &State, owner: u64) -> *mut c_void {
        let own: Vec<Block> = state.blocks.iter().filter(|block| block.owner == owner).copied().collect();
        let of = |block: &Block| block.address;
        match self.validity {
            2 if !state.blocks.is_empty() => of(self.other.get(&state.blocks)),
            3 => without_provenance_mut(self.numbers[3] as usize),
            4 if !own.is_empty() => of(self.other.get(&own)).wrapping_byte_add(1),
            5 if !own.is_empty() => of(self.other.get(&own)).wrapping_byte_sub(16),
            _ if own.is_empty() => null_mut(),
            _ => of(self.other.get(&own)),
        }
    }

    fn device(&self) -> wh_device {
        let context = if self.validity == 6 { without_provenance_mut(16) } else { null_mut() };
        // Another backend than the CPU does not read the context: it does not exist.
        wh_device { backend: self.backend, context }
    }

    fn struct_bytes<T>(&self) -> usize {
        if self.is_versioned { size_of::<T>() } else { self.numbers[3] as usize }
    }

    fn options<T>(&self, options: &T) -> *const T {
        if self.validity == 7 { null() } else { options }
    }

    /// Calls a function with the place of a result, and returns its status and the result.
    fn result<T: Copy>(&self, initial: T, function: impl FnOnce(*mut T) -> wh_status) -> (wh_status, T) {
        let mut slot = Slot::new(initial);
        let status = check(function(slot.at(self.place)));
        assert!(self.place == Place::Valid || status != WH_OK, "the result has no place");
        (status, slot.value())
    }

    /// A string for `wh_string_free`.
    fn string(&self, state: &mut State, function: impl FnOnce(*mut *mut c_char) -> wh_status) {
        let (status, string) = self.result(null_mut(), function);
        state.returned(status, string);
    }
}

impl Call {
    pub fn make(&self, state: &mut State) {
        match self.function {
            0..8 => self.create(state),
            8..12 => self.destroy(state),
            12..20 => self.allocate(state),
            20..25 => self.deallocate(state),
            25 => self.reset(state),
            _ => self.report(state),
        }
    }

    fn create(&self, state: &mut State) {
        let [first, second, third, _] = self.numbers;
        let device = self.device();
        match self.function % 4 {
            0 => {
                // A heap of an odd size, or the smallest.
                let bytes = if self.validity < 8 { first } else { 1 << 20 };
                let options = wh_heap_options {
                    struct_bytes: self.struct_bytes::<wh_heap_options>(),
                    bytes,
                    initial_bytes: if self.validity == 8 { second } else { 0 },
                    largest_class: if self.validity == 9 { third as u32 } else { 0 },
                    shards: if self.validity == 10 { third as u32 } else { 0 },
                };
                let (status, heap) = self.result(wh_heap_owner { id: 0 }, |heap| {
                    c!(wh_heap_create(device, self.options(&options), heap))
                });
                state.created(Kind::Heap, status, heap.id);
            }
            1 => {
                let options = wh_bump_options {
                    struct_bytes: self.struct_bytes::<wh_bump_options>(),
                    capacity: first,
                    min_align: if self.validity < 9 { 0 } else { second },
                    shards: if self.validity < 9 { 0 } else { third as u32 },
                };
                let (status, bump) = self.result(wh_bump_owner { id: 0 }, |bump| {
                    c!(wh_bump_create(device, self.options(&options), bump))
                });
                state.created(Kind::Bump, status, bump.id);
            }
            2 => {
                let options = wh_freelist_options {
                    struct_bytes: self.struct_bytes::<wh_freelist_options>(),
                    // Their product is at most 2 MiB, or absurd.
                    blocks: if second > 4096 && first < 1 << 50 { first.min(16) } else { first },
                    block_size: if first > 4096 && second < 1 << 50 { second.min(16) } else { second },
                    align: if self.validity < 9 { 0 } else { third },
                };
                let (status, list) = self.result(wh_freelist_owner { id: 0 }, |list| {
                    c!(wh_freelist_create(device, self.options(&options), list))
                });
                state.created(Kind::FreeList, status, list.id);
            }
            _ => {
                let options = wh_pool_options {
                    struct_bytes: self.struct_bytes::<wh_pool_options>(),
                    max_bytes: first,
                    min_block: if self.validity == 8 { second } else { 0 },
                    slab_limit: if self.validity == 9 { third } else { 0 },
                    spare_bytes: if self.validity == 10 { second } else { 0 },
                    classes_per_doubling: if self.validity == 11 { third as u32 } else { 0 },
                };
                let (status, pool) = self.result(wh_pool { id: 0 }, |pool| {
                    c!(wh_pool_create(device, self.options(&options), pool))
                });
                state.created(Kind::Pool, status, pool.id);
            }
        }
    }

    fn destroy(&self, state: &mut State) {
        let kind = [Kind::Heap, Kind::Bump, Kind::FreeList, Kind::Pool][usize::from(self.function % 4)];
        let id = self.owner(state, kind);
        state.destroyed(kind, check(destroy(kind, id)), id);
    }

    fn allocate(&self, state: &mut State) {
        let [first, second, ..] = self.numbers;
        let (bytes, align) = (first as usize, if self.validity < 10 { 0 } else { second as usize });
        let (owner, block, status);
        if self.function.is_multiple_of(2) {
            owner = self.owner(state, Kind::Heap);
            let heap = wh_heap_owner { id: owner };
            let call = |block| c!(wh_heap_allocate(heap, bytes, align, block));
            (status, block) = self.result(null_mut(), call);
        } else {
            owner = self.owner(state, Kind::Pool);
            let (pool, stream) = (wh_pool { id: owner }, self.stream());
            let call = |block| c!(wh_pool_allocate(pool, bytes, align, stream, block));
            (status, block) = self.result(null_mut(), call);
        }
        state.allocated(owner, status, block, bytes, align);
    }

    /// Null, or one of a few numbers, each of which is a stream of the CPU.
    fn stream(&self) -> *mut c_void {
        if self.validity == 7 { without_provenance_mut(self.numbers[2] as usize % 4) } else { null_mut() }
    }

    fn deallocate(&self, state: &mut State) {
        if self.function == 20 {
            let strings = &state.strings;
            let string = match self.validity {
                0 => without_provenance_mut(self.numbers[3] as usize),
                1 | 2 if !strings.is_empty() => self.pick.get(strings).0.wrapping_byte_add(1),
                _ if strings.is_empty() => null_mut(),
                _ => self.pick.get(strings).0,
            };
            let status = check(c!(wh_string_free(string)));
            return state.freed_string(status, string);
        }
        let kind = if self.function.is_multiple_of(2) { Kind::Heap } else { Kind::Pool };
        let owner = self.owner(state, kind);
        let address = self.address(state, owner);
        let status = match kind {
            Kind::Heap => c!(wh_heap_deallocate(wh_heap_owner { id: owner }, address)),
            _ => c!(wh_pool_deallocate(wh_pool { id: owner }, address, null_mut())),
        };
        state.freed(kind, owner, check(status), address);
    }

    fn reset(&self, state: &mut State) {
        let kind = [Kind::Heap, Kind::Bump, Kind::FreeList][self.other.index(3)];
        let id = self.owner(state, kind);
        let status = match kind {
            Kind::Heap => wh_heap_reset(wh_heap_owner { id }),
            Kind::Bump => wh_bump_reset(wh_bump_owner { id }),
            _ => wh_freelist_reset(wh_freelist_owner { id }),
        };
        assert_eq!(check(status) == WH_OK, state.is_live(kind, id), "{kind:?} {id:#x}");
        if state.is_live(kind, id) {
            state.forget(id);
        }
    }

    fn report(&self, state: &mut State) {
        let number = self.numbers[0];
        let [heap, bump, list, pool] =
            [Kind::Heap, Kind::Bump, Kind::FreeList, Kind::Pool].map(|kind| self.owner(state, kind));
        let (heap, bump) = (wh_heap_owner { id: heap }, wh_bump_owner { id: bump });
        let (list, pool) = (wh_freelist_owner { id: list }, wh_pool { id: pool });
        match self.other.index(20) {
            0 => self.string(state, |json| c!(wh_heap_stats_json(heap, json))),
            1 => self.string(state, |json| c!(wh_heap_leaks_json(heap, number as usize, json))),
            2 => self.string(state, |json| c!(wh_heap_faults_json(heap, json))),
            3 => self.string(state, |text| c!(wh_heap_report(heap, text))),
            4 => self.string(state, |json| c!(wh_bump_stats_json(bump, json))),
            5 => self.string(state, |json| c!(wh_freelist_stats_json(list, json))),
            6 => self.string(state, |json| c!(wh_freelist_faults_json(list, json))),
            7 => self.string(state, |json| c!(wh_pool_stats_json(pool, json))),
            8 => self.string(state, |text| c!(wh_pool_report(pool, text))),
            9 => drop(self.result(null_mut(), |handle| c!(wh_heap_handle(heap, handle)))),
            10 => drop(self.result(null_mut(), |handle| c!(wh_bump_handle(bump, handle)))),
            11 => drop(self.result(null_mut(), |handle| c!(wh_freelist_handle(list, handle)))),
            12 => self.consistent(|violations| c!(wh_heap_check(heap, violations, null_mut()))),
            13 => self.consistent(|violations| c!(wh_bump_check(bump, violations, null_mut()))),
            14 => self.consistent(|violations| c!(wh_freelist_check(list, violations, null_mut()))),
            15 => drop(self.optional(|size| c!(wh_heap_grow(heap, number, size)))),
            16 => drop(self.optional(|released| c!(wh_pool_trim(pool, released)))),
            17 => {
                self.result(wh_heap_value::NULL, |value| c!(wh_heap_get_value(heap, value)));
            }
            18 => {
                let mut stats = wh_heap_stats {
                    struct_bytes: self.struct_bytes::<wh_heap_stats>(),
                    ..Default::default()
                };
                check(c!(wh_heap_get_stats(
                    heap,
                    if self.place == Place::Null { null_mut() } else { &raw mut stats }
                )));
            }
            _ => {
                check(wh_pool_forget_stream(pool, self.stream()));
                let (major, minor) = (self.numbers[1] as i32, self.numbers[2] as i32);
                self.result(null(), |ptx| c!(wh_device_library(major, minor, ptx, null_mut())));
                // SAFETY: a static string.
                let name = unsafe { CStr::from_ptr(wh_status_name(major)) };
                assert!(!name.is_empty());
            }
        }
    }

    /// A function whose result may be null, which is then not wanted.
    fn optional(&self, function: impl FnOnce(*mut u64) -> wh_status) -> u64 {
        let mut slot = Slot::new(0);
        check(function(slot.at(self.place)));
        slot.value()
    }

    /// A check of the metadata, which finds nothing.
    fn consistent(&self, function: impl FnOnce(*mut u64) -> wh_status) {
        assert_eq!(self.optional(function), 0, "violations");
    }
}
