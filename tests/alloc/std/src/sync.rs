//! `std::sync` for one thread: each thread has its own statics, so nothing here waits.

pub use alloc_crate::sync::*;
use core::cell::{OnceCell, RefCell, RefMut};
pub use core::sync::*;

/// A value that is written once.
#[derive(Debug, Default)]
pub struct OnceLock<T>(OnceCell<T>);

impl<T> OnceLock<T> {
    /// Without a value.
    pub const fn new() -> Self {
        OnceLock(OnceCell::new())
    }

    /// The value, which `init` returns at the first call.
    pub fn get_or_init(&self, init: impl FnOnce() -> T) -> &T {
        self.0.get_or_init(init)
    }
}

/// A value under a lock.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(RefCell<T>);

impl<T> Mutex<T> {
    /// A mutex with `value`.
    pub const fn new(value: T) -> Self {
        Mutex(RefCell::new(value))
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Locks the mutex.
    pub fn lock(&self) -> Result<RefMut<'_, T>, core::fmt::Error> {
        Ok(self.0.borrow_mut())
    }
}

/// `std::sync::mpsc`.
pub mod mpsc {
    /// Is only named.
    pub fn channel() {}
}
