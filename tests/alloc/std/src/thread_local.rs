//! Thread-local statics.
//!
//! A thread initialises its value at the first access. The values of a thread are in a list, in
//! which the end of the test drops them: the next test of the same program finds none.

use core::cell::{BorrowError, Cell, RefCell, UnsafeCell};
use core::fmt;
use core::mem::MaybeUninit;
use core::ops::Deref;
use warpheap_device::thread;

/// Most threads of a test.
pub(crate) const THREADS: usize = 64;

/// A thread-local static.
pub struct ThreadLocal<T: 'static> {
    slots: [UnsafeCell<Slot<T>>; THREADS],
    init: fn() -> T,
}

struct Slot<T> {
    /// Whether `value` is initialised.
    is_set: bool,
    value: MaybeUninit<T>,
    /// The value that the thread initialised before this one.
    next: Option<&'static dyn Value>,
}

impl<T> Slot<T> {
    const UNSET: Self = Slot { is_set: false, value: MaybeUninit::uninit(), next: None };
}

/// A value of a thread.
trait Value {
    /// Makes the value of `thread` uninitialised, and returns the next one.
    fn end(&'static self, thread: usize, drops: bool) -> Option<&'static dyn Value>;
}

/// The values of each thread: the first of its list.
struct Lists([UnsafeCell<Option<&'static dyn Value>>; THREADS]);

static LISTS: Lists = Lists([const { UnsafeCell::new(None) }; THREADS]);

// SAFETY: each thread accesses its own element only.
unsafe impl Sync for Lists {}
// SAFETY: each thread accesses its own slot only.
unsafe impl<T> Sync for ThreadLocal<T> {}

fn this_thread() -> usize {
    thread::index_1d() as usize
}

impl<T> ThreadLocal<T> {
    /// A static with the initial value `init()`.
    pub const fn new(init: fn() -> T) -> Self {
        ThreadLocal { slots: [const { UnsafeCell::new(Slot::UNSET) }; THREADS], init }
    }

    fn value(&'static self) -> &'static T {
        let (thread, init) = (this_thread(), self.init);
        let slot = self.slots[thread].get();
        // SAFETY: only this thread accesses its slot.
        let is_set = unsafe { (*slot).is_set };
        if !is_set {
            let (value, list) = (init(), LISTS.0[thread].get());
            // SAFETY: as above. `init` has returned, so that no other reference exists.
            let next = unsafe { core::ptr::replace(list, Some(self)) };
            let new = Slot { is_set: true, value: MaybeUninit::new(value), next };
            // SAFETY: as above.
            unsafe { slot.write(new) };
        }
        // SAFETY: as above. Nothing writes the slot before the end of the test.
        let value = unsafe { &(*slot).value };
        // SAFETY: it is initialised.
        unsafe { value.assume_init_ref() }
    }

    /// Calls `f` with the value of this thread.
    pub fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        f(self.value())
    }
}

impl<T> Value for ThreadLocal<T> {
    fn end(&'static self, thread: usize, drops: bool) -> Option<&'static dyn Value> {
        let slot = self.slots[thread].get();
        // SAFETY: only this thread accesses its slot.
        let old = unsafe { slot.replace(Slot::UNSET) };
        if drops && old.is_set {
            // SAFETY: it is initialised, and nothing uses it any more.
            drop(unsafe { old.value.assume_init() });
        }
        old.next
    }
}

/// Ends the values of this thread. Without `drops`, those of a test that did not end are forgotten.
pub(crate) fn end_values(drops: bool) {
    let thread = this_thread();
    let mut next = {
        // SAFETY: only this thread accesses its list.
        unsafe { LISTS.0[thread].get().replace(None) }
    };
    while let Some(value) = next {
        next = value.end(thread, drops);
    }
}

impl<T: Copy> ThreadLocal<Cell<T>> {
    /// The value in the cell.
    pub fn get(&'static self) -> T {
        self.value().get()
    }
}

impl<T> ThreadLocal<Cell<T>> {
    /// Sets the value in the cell.
    pub fn set(&'static self, value: T) {
        self.value().set(value);
    }
}

impl<T> ThreadLocal<RefCell<T>> {
    /// Calls `f` with the value in the cell.
    pub fn with_borrow<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        f(&self.value().borrow())
    }

    /// Calls `f` with the value in the cell, which it may change.
    pub fn with_borrow_mut<R>(&'static self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.value().borrow_mut())
    }

    /// The value in the cell if it can be borrowed.
    pub fn try_with_borrow<R>(&'static self, f: impl FnOnce(&T) -> R) -> Result<R, BorrowError> {
        self.value().try_borrow().map(|value| f(&value))
    }
}

impl<T> Deref for ThreadLocal<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the edits of the sources make statics of this type only.
        let this: &'static Self = unsafe { &*core::ptr::from_ref(self) };
        this.value()
    }
}

impl<T> fmt::Debug for ThreadLocal<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadLocal").finish_non_exhaustive()
    }
}
