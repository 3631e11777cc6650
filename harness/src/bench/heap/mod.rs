//! The heap: every workload compared with the same kernel without allocation, and the behaviour at
//! the limits of the memory.
//!
//! | names begin with | file | what |
//! |---|---|---|
//! | `heap alloc`, `heap free` | `alloc_free` | one block per thread |
//! | `heap alloc, 8192 B, exactly the heap`, `full heap` | `limits` | near the end of the memory |
//! | `heap reuse`, `heap whole` | `limits` | near the end of the memory |
//! | `heap churn` | `churn` | repeated pairs |
//! | `heap churn through the block cache` | `groups` | group functions |
//! | `heap alloc for whole blocks` | `groups` | group functions |
//! | `heap init`, `heap metadata` | `init` | fixed costs |

mod alloc_free;
mod churn;
mod groups;
mod init;
mod limits;
mod load;
#[cfg(test)]
mod tests;

use super::figures::Bench;
use super::plan::Plan;
use crate::kernels::bench::Sizes;
use crate::{Error, Result};
use load::Load;
use warpheap::device_pools::Heap;

const GIB: u64 = 1 << 30;
const WITHOUT_ALLOCATING: &str = "the same without allocating";

/// All figures of the heap.
pub(super) fn plans() -> impl Iterator<Item = Plan> {
    let groups = [alloc_free::plans(), churn::plans(), limits::plans(), init::plans(), groups::plans()];
    groups.into_iter().flatten()
}

impl Bench {
    /// A heap of `bytes`.
    fn heap(&self, bytes: u64) -> warpheap::Result<Heap> {
        Heap::builder(bytes >> self.shrink).build(&self.timer.device)
    }

    /// A load of `threads`.
    fn load(&self, threads: u32, sizes: Sizes) -> Result<Load<'_>> {
        Load::new(&self.timer, threads >> self.shrink, sizes)
    }
}

/// One size for all threads.
fn one_size(bytes: u32) -> Sizes {
    Sizes { min: bytes, max: bytes }
}

/// Size of a heap with room for `threads` allocations: 8 GiB, or 16 GiB if they request as much as
/// 8.
fn room_for(threads: u32, sizes: Sizes) -> u64 {
    let mean = u64::from(sizes.min + sizes.max) / 2;
    if u64::from(threads) * mean < 8 * GIB { 8 * GIB } else { 16 * GIB }
}

fn wrong(name: &str, found: String) -> Error {
    Error::WrongResult { what: name.into(), found }
}
