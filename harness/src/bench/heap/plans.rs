//! The list of all figures of the heap.

use super::{alloc_free, churn, groups, init, limits};
use crate::bench::plan::Plan;

/// All figures of the heap.
pub(in crate::bench) fn plans() -> impl Iterator<Item = Plan> {
    let groups = [alloc_free::plans(), churn::plans(), limits::plans(), init::plans(), groups::plans()];
    groups.into_iter().flatten()
}
