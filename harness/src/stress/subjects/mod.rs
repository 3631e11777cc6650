//! The allocators of this library under stress.

mod bump;
mod freelist;
mod heap;

pub(super) use bump::BumpSubject;
pub(super) use freelist::FreeListSubject;
pub(super) use heap::HeapSubject;
