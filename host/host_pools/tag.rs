//! Tags: names for the allocations of a thread.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;

thread_local! {
    static CURRENT: RefCell<Option<Arc<str>>> = const { RefCell::new(None) };
}

/// Tags the allocations of this thread until the returned scope is dropped.
///
/// [`Logged`](super::Logged) writes the tag to its log. Other allocators ignore it, and cost the
/// same with and without a tag. Within a scope, another scope replaces the tag until it is dropped.
///
/// ```
/// use std::alloc::Layout;
/// use warpheap::Device;
/// use warpheap::host_pools::{DeviceAllocator, Logged, SyncDriverAllocator, tag};
///
/// let device = Device::cpu();
/// let stream = device.stream()?;
/// let pool = Logged::new(SyncDriverAllocator::new(&device), Vec::new());
/// let block = {
///     let _scope = tag("layer 3");
///     pool.allocate(Layout::new::<[f32; 1024]>(), &stream)?
/// };
/// // SAFETY: allocated above, and nothing uses it.
/// unsafe { pool.deallocate(block, Layout::new::<[f32; 1024]>(), &stream)? };
/// let (_, log) = pool.into_parts()?;
/// assert!(String::from_utf8_lossy(&log).contains("\"layer 3\""));
/// # Ok::<(), warpheap::Error>(())
/// ```
pub fn tag(name: impl Into<Arc<str>>) -> TagScope {
    TagScope { before: CURRENT.replace(Some(name.into())), of_one_thread: PhantomData }
}

/// The tag of allocations that this thread makes now.
pub(super) fn current_tag() -> Option<Arc<str>> {
    CURRENT.with_borrow(Clone::clone)
}

/// The scope of a [`tag`]. When it is dropped, the tag from before it is current again.
#[derive(Debug)]
#[must_use = "the tag applies until this is dropped"]
pub struct TagScope {
    before: Option<Arc<str>>,
    /// The scope cannot be sent to another thread, which has a tag of its own.
    of_one_thread: PhantomData<*const ()>,
}

impl Drop for TagScope {
    fn drop(&mut self) {
        CURRENT.set(self.before.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_nest_and_belong_to_one_thread() {
        let current = || current_tag().as_deref().map(str::to_owned);
        assert_eq!(current(), None);
        let outer = tag("outer");
        let inner = tag(String::from("inner"));
        assert_eq!(current().as_deref(), Some("inner"));
        assert_eq!(std::thread::scope(|scope| scope.spawn(current).join().unwrap()), None);
        drop(inner);
        assert_eq!(current().as_deref(), Some("outer"));
        drop(outer);
        assert_eq!(current(), None);
    }
}
