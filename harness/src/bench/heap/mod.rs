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

use super::context::Plan;

/// All figures of the heap.
pub(super) fn plans() -> impl Iterator<Item = Plan> {
    let groups = [alloc_free::plans(), churn::plans(), limits::plans(), init::plans(), groups::plans()];
    groups.into_iter().flatten()
}
