//! A call, and its arguments, which are picked from a list of limits and from earlier results.

use super::state::{Block, Kind, State, check};
use crate::device::{wh_backend, wh_device};
use crate::status::wh_status::{self, WH_OK};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut, without_provenance_mut};

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
pub(super) enum Place {
    Valid,
    Null,
    Misaligned,
}

#[derive(Clone, Debug)]
pub struct Call {
    pub(super) function: u8,
    /// Picks a pool, a block or a string of an earlier call.
    pub(super) pick: Index,
    pub(super) other: Index,
    /// Whether the pick is used, or else 0, a number, or one beside it.
    pub(super) validity: u8,
    pub(super) numbers: [u64; 4],
    pub(super) place: Place,
    /// Whether the struct has its right size, and the backend exists.
    pub(super) is_versioned: bool,
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
pub(super) struct Slot<T>([MaybeUninit<T>; 2]);

impl<T: Copy> Slot<T> {
    pub(super) fn new(initial: T) -> Slot<T> {
        Slot([MaybeUninit::new(initial); 2])
    }

    pub(super) fn at(&mut self, place: Place) -> *mut T {
        match place {
            Place::Valid => self.0.as_mut_ptr().cast(),
            Place::Null => null_mut(),
            Place::Misaligned => self.0.as_mut_ptr().cast::<T>().wrapping_byte_add(1),
        }
    }

    pub(super) fn value(&self) -> T {
        // SAFETY: `new` initialised it.
        unsafe { self.0[0].assume_init() }
    }
}

impl Call {
    /// A pool of any kind, live or not, or none.
    pub(super) fn owner(&self, state: &State, kind: Kind) -> u64 {
        let meant: Vec<_> = state.owners.iter().filter(|owner| owner.kind == kind).collect();
        match self.validity {
            0 => self.numbers[3],
            1 if !state.owners.is_empty() => self.pick.get(&state.owners).id,
            _ if meant.is_empty() => 0,
            _ => self.pick.get(&meant).id,
        }
    }

    /// An address: of a block of that pool, of any block, inside or beside one, or none.
    pub(super) fn address(&self, state: &State, owner: u64) -> *mut c_void {
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

    pub(super) fn device(&self) -> wh_device {
        let context = if self.validity == 6 { without_provenance_mut(16) } else { null_mut() };
        // Another backend than the CPU does not read the context: it does not exist.
        wh_device { backend: self.backend, context }
    }

    pub(super) fn struct_bytes<T>(&self) -> usize {
        if self.is_versioned { size_of::<T>() } else { self.numbers[3] as usize }
    }

    pub(super) fn options<T>(&self, options: &T) -> *const T {
        if self.validity == 7 { null() } else { options }
    }

    /// Calls a function with the place of a result, and returns its status and the result.
    pub(super) fn result<T: Copy>(
        &self,
        initial: T,
        function: impl FnOnce(*mut T) -> wh_status,
    ) -> (wh_status, T) {
        let mut slot = Slot::new(initial);
        let status = check(function(slot.at(self.place)));
        assert!(self.place == Place::Valid || status != WH_OK, "the result has no place");
        (status, slot.value())
    }

    /// A string for `wh_string_free`.
    pub(super) fn string(&self, state: &mut State, function: impl FnOnce(*mut *mut c_char) -> wh_status) {
        let (status, string) = self.result(null_mut(), function);
        state.returned(status, string);
    }
}
