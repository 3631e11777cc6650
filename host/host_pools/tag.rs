//! Tags: names for the allocations of a thread.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;

thread_local! {
    static SCOPES: RefCell<Scopes> = const { RefCell::new(Scopes { last: 0, open: Vec::new() }) };
}

/// The scopes of a thread. The tag of the last open scope is current.
struct Scopes {
    /// The number of the last scope that was opened.
    last: u64,
    /// Number and tag of each scope that is not dropped, in the order of their creation.
    open: Vec<(u64, Arc<str>)>,
}

/// Tags the allocations of this thread until the returned scope is dropped.
///
/// [`Logged`](super::Logged) writes the tag to its log. Other allocators ignore it, and cost the
/// same with and without a tag. Within a scope, another scope replaces the tag until it is dropped.
/// Scopes may be dropped in any order: the tag is that of the last scope that is not dropped.
///
/// Destructors of other thread-local data may run when a thread has no tag any more.
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
    let name = name.into();
    let open = |scopes: &RefCell<Scopes>| {
        let mut scopes = scopes.borrow_mut();
        scopes.last += 1;
        let number = scopes.last;
        scopes.open.push((number, name));
        number
    };
    TagScope { number: SCOPES.try_with(open).ok(), of_one_thread: PhantomData }
}

/// The tag of allocations that this thread makes now.
pub(super) fn current_tag() -> Option<Arc<str>> {
    let current = |scopes: &RefCell<Scopes>| scopes.borrow().open.last().map(|(_, name)| Arc::clone(name));
    SCOPES.try_with(current).ok().flatten()
}

/// The scope of a [`tag`]. When it is dropped, its tag no longer applies.
#[derive(Debug)]
#[must_use = "the tag applies until this is dropped"]
pub struct TagScope {
    /// `None` if the thread's data was already destroyed.
    number: Option<u64>,
    /// The scope cannot be sent to another thread, which has a tag of its own.
    of_one_thread: PhantomData<*const ()>,
}

impl Drop for TagScope {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        // An error means that the thread ends and its scopes are gone.
        let _ = SCOPES.try_with(|scopes| {
            let mut scopes = scopes.borrow_mut();
            let at = scopes.open.iter().rposition(|(of, _)| *of == number)?;
            Some(scopes.open.remove(at))
        });
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

    #[test]
    fn scopes_end_in_any_order() {
        let current = || current_tag().as_deref().map(str::to_owned);
        let (first, second, third) = (tag("first"), tag("second"), tag("third"));
        drop(first);
        assert_eq!(current().as_deref(), Some("third"));
        drop(third);
        assert_eq!(current().as_deref(), Some("second"));
        drop(second);
        assert_eq!(current(), None);
    }

    /// The destructor of a thread-local value may run after that of the scopes.
    #[test]
    fn a_scope_may_outlive_the_data_of_its_thread() {
        struct Held(RefCell<Option<TagScope>>);
        impl Drop for Held {
            fn drop(&mut self) {
                drop(self.0.take());
                let _last = tag("at the end");
                current_tag();
            }
        }
        thread_local! {
            static EARLY: Held = const { Held(RefCell::new(None)) };
            static LATE: Held = const { Held(RefCell::new(None)) };
        }
        let ended = std::thread::spawn(|| {
            EARLY.with(|held| held.0.replace(None));
            let scope = tag("first");
            LATE.with(|held| held.0.replace(Some(tag("late"))));
            EARLY.with(|held| held.0.replace(Some(scope)));
        });
        assert!(ended.join().is_ok(), "the destructors did not panic");
    }
}
