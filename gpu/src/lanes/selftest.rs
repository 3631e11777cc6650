//! The sums over lanes, as tests call them: both ways, of which an allocator takes the one that its machine is
//! built for.

use super::{Lanes, Sum};
use crate::units::LaneMask;
use crate::warp;

/// What the sums over lanes come to on one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums {
    /// Of the values on the lanes before this one.
    pub before: u32,
    /// Of all values.
    pub total: u32,
    /// The total that is handed on while `before` is worked out.
    pub early_total: u32,
    /// Of all wrapping values, wrapping.
    pub wrapping: u32,
    /// The bits that any lane holds.
    pub union: u32,
}

/// Sums over the lanes of `mask`: `value`, whose total must not exceed 32 bits, and `any`. `REDUCE`: by the
/// instruction that reduces over a mask. `WHOLE`: by the code for a whole warp.
///
/// # Safety
/// The caller is in `mask`, and every lane of it comes here with the same mask. `WHOLE` is for whole warps alone.
pub unsafe fn sums<const REDUCE: bool, const WHOLE: bool>(mask: LaneMask, value: u32, any: u32) -> Sums {
    let lanes = Lanes::<WHOLE> { mask, lane: warp::lane_id() };
    let (Sum { before, total }, early_total) = lanes.prefix_sum_by::<REDUCE, _>(value, |total| total);
    let (wrapping, union) = (lanes.wrapping_sum_by::<REDUCE>(any), lanes.union_by::<REDUCE>(any));
    Sums { before, total, early_total, wrapping, union }
}
