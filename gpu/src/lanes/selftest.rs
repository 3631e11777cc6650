//! Sums over lanes for tests, in both variants. An allocator uses the one that its target was built
//! for.

use super::Lanes;
use super::sums::Sum;
use crate::units::LaneMask;
use crate::warp;

/// The sums over lanes as seen by one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums {
    /// The sum of the values of the lanes before this one.
    pub before: u32,
    /// The sum of all values.
    pub total: u32,
    /// The total that is passed on while `before` is still being computed.
    pub early_total: u32,
    /// The wrapping sum of all `any` values.
    pub wrapping: u32,
    /// The bits that are set on any lane.
    pub union: u32,
}

/// Sums over the lanes of `mask`: of `value`, whose total must not exceed 32 bits, and of `any`.
/// `REDUCE` selects the instruction that reduces over a mask. `WHOLE` selects the code for a full
/// warp.
///
/// # Safety
/// The caller is in `mask`, and every lane of `mask` executes this call with the same mask. `WHOLE`
/// requires a full warp.
pub unsafe fn sums<const REDUCE: bool, const WHOLE: bool>(mask: LaneMask, value: u32, any: u32) -> Sums {
    let lanes = Lanes::<WHOLE> { mask, lane: warp::lane_id() };
    let (Sum { before, total }, early_total) = lanes.prefix_sum_by::<REDUCE, _>(value, |total| total);
    let (wrapping, union) = (lanes.wrapping_sum_by::<REDUCE>(any), lanes.union_by::<REDUCE>(any));
    Sums { before, total, early_total, wrapping, union }
}
