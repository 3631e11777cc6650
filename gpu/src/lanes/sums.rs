//! Sums over lanes: totals and exclusive prefix sums.

use super::{Group, Lanes};
use crate::units::WARP_SIZE;
use crate::warp::{self, HAS_REDUCE};

/// A sum over lanes, as seen by the calling lane.
#[derive(Clone, Copy)]
pub(crate) struct Sum<T> {
    /// Over the lanes before this one.
    pub before: T,
    /// Over all lanes.
    pub total: T,
}

impl Group {
    /// Like [`prefix_sum`](Self::prefix_sum). Values may exceed 32 bits only in a group of one
    /// lane.
    pub fn prefix_sum_64(self, value: u64) -> Sum<u64> {
        if self.count() == 1 {
            return Sum { before: 0, total: value };
        }
        let sum = self.prefix_sum(value as u32);
        Sum { before: sum.before.into(), total: sum.total.into() }
    }

    /// The sum over the lanes before this one, and over the group. No total may exceed 32 bits. Out
    /// of line, off the fast path, where a call costs less than its registers.
    #[inline(never)]
    pub fn prefix_sum(self, value: u32) -> Sum<u32> {
        self.prefix_sum_with(value, |_| ()).0
    }
}

impl<const WHOLE: bool> Lanes<WHOLE> {
    /// The sum over the lanes before this one, the sum over all lanes, and the result of `f`. `f`
    /// gets the total as soon as it is known. The prefix sums are computed while its memory
    /// operations are under way. No total may exceed 32 bits.
    #[inline(always)]
    pub fn prefix_sum_with<R>(self, value: u32, f: impl FnOnce(u32) -> R) -> (Sum<u32>, R) {
        self.prefix_sum_by::<HAS_REDUCE, R>(value, f)
    }

    /// [`prefix_sum_with`](Self::prefix_sum_with). `REDUCE` selects the instruction that reduces
    /// over a mask.
    #[inline(always)]
    pub(super) fn prefix_sum_by<const REDUCE: bool, R>(
        self,
        value: u32,
        f: impl FnOnce(u32) -> R,
    ) -> (Sum<u32>, R) {
        if REDUCE {
            // SAFETY: every lane of the group executes this call.
            let total = unsafe { warp::warp_reduce_add_32(self.mask(), value) };
            let result = f(total);
            // Wrapping: one lane's value may exceed the mean of all lanes. Equality on all lanes
            // still implies equal values, because the total itself does not wrap.
            let before = if self.all(value.wrapping_mul(self.count()) == total) {
                self.rank() * value
            } else {
                self.scan(value, |a, b| a + b) - value
            };
            return (Sum { before, total }, result);
        }
        let first = self.broadcast_32(value);
        let (before, total) = if self.all(value == first) {
            (self.rank() * value, self.count() * value)
        } else {
            let inclusive = self.scan(value, |a, b| a + b);
            (inclusive - value, self.read_32(inclusive, self.last()))
        };
        (Sum { before, total }, f(total))
    }

    /// The sum over the group, wrapping.
    #[inline(always)]
    pub fn wrapping_sum(self, value: u32) -> u32 {
        self.wrapping_sum_by::<HAS_REDUCE>(value)
    }

    #[inline(always)]
    pub(super) fn wrapping_sum_by<const REDUCE: bool>(self, value: u32) -> u32 {
        if REDUCE {
            // SAFETY: every lane of the group executes this call.
            return unsafe { warp::warp_reduce_add_32(self.mask(), value) };
        }
        self.read_32(self.scan(value, u32::wrapping_add), self.last())
    }

    /// The bits that are set on any lane of the group.
    #[inline(always)]
    pub fn union(self, bits: u32) -> u32 {
        self.union_by::<HAS_REDUCE>(bits)
    }

    #[inline(always)]
    pub(super) fn union_by<const REDUCE: bool>(self, bits: u32) -> u32 {
        if REDUCE {
            // SAFETY: every lane of the group executes this call.
            return unsafe { warp::warp_reduce_or_32(self.mask(), bits) };
        }
        self.read_32(self.scan(bits, |a, b| a | b), self.last())
    }

    /// Inclusive scan.
    #[inline(always)]
    fn scan(self, value: u32, op: impl Fn(u32, u32) -> u32) -> u32 {
        if WHOLE { self.scan_warp(value, op) } else { self.group().scan_lanes(value, op) }
    }

    #[inline(always)]
    fn last(self) -> u32 {
        self.mask().last()
    }

    /// Inclusive scan over a full warp: five shuffles.
    #[inline(always)]
    fn scan_warp(self, value: u32, op: impl Fn(u32, u32) -> u32) -> u32 {
        let mut sum = value;
        let mut distance = 1;
        while distance < WARP_SIZE {
            // SAFETY: the group is a full warp, and all its lanes execute this call.
            if let Some(below) = unsafe { warp::warp_shuffle_up_found_32(self.mask(), sum, distance) } {
                sum = op(sum, below);
            }
            distance *= 2;
        }
        sum
    }

    /// Inclusive scan over any set of lanes: each lane links to the lane before it, and the
    /// distance doubles with every step. Ten shuffles.
    #[inline(never)]
    fn scan_lanes(self, value: u32, op: impl Fn(u32, u32) -> u32) -> u32 {
        let before = self.mask().0 & ((1 << self.lane) - 1);
        let mut sum = value;
        // The lane with the next partial sum, or this lane if there is none.
        let mut next = if before == 0 { self.lane } else { WARP_SIZE - 1 - before.leading_zeros() };
        let mut done = before == 0;
        let mut distance = 1;
        while distance < WARP_SIZE {
            let below = self.read_32(sum, next);
            let packed = self.read_32(next | u32::from(done) << 8, next);
            if !done {
                sum = op(sum, below);
                next = packed & 0xff;
                done = packed >> 8 != 0;
            }
            distance *= 2;
        }
        sum
    }
}
