//! Arguments from C: places for results, structs with their size, layouts.

use crate::status::{Failure, Result};
use std::alloc::Layout;
use std::ptr::NonNull;

/// A place for a result.
pub(crate) struct Out<T>(NonNull<T>);

impl<T> Out<T> {
    /// The place at `at`, the parameter `name`. Writes `null` there, the result of a failed call.
    ///
    /// # Safety
    /// `at` is null, or valid for writes of a `T` as long as this value lives.
    pub unsafe fn new(at: *mut T, name: &str, null: T) -> Result<Out<T>> {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::optional(at, name, null) }?;
        out.ok_or_else(|| Failure::argument(name, "it is null; pass the address for the result"))
    }

    /// As [`new`](Self::new); `None` if `at` is null: the caller does not want the result.
    ///
    /// # Safety
    /// As for [`new`](Self::new).
    pub unsafe fn optional(at: *mut T, name: &str, null: T) -> Result<Option<Out<T>>> {
        check_aligned(at, name)?;
        let out = NonNull::new(at).map(Out);
        if let Some(out) = &out {
            out.set(null);
        }
        Ok(out)
    }

    pub fn set(&self, value: T) {
        // SAFETY: valid for writes, by the promise of `new`.
        unsafe { self.0.write(value) };
    }
}

fn check_aligned<T>(at: *const T, name: &str) -> Result<()> {
    if at.is_aligned() {
        return Ok(());
    }
    Err(Failure::argument(name, format!("{at:p} is not aligned to {} bytes", align_of::<T>())))
}

/// A struct with the size that the caller compiled in its first field, `struct_bytes`.
///
/// # Safety
/// It is `repr(C)`, and a `usize` is at offset 0.
pub(crate) unsafe trait Versioned: Copy {
    /// Its name in C.
    const NAME: &str;
}

/// Checks the size in the struct at `at`, the parameter `name`.
///
/// # Safety
/// `at` is null, or valid for reads of its first field.
pub(crate) unsafe fn check_struct<T: Versioned>(at: *const T, name: &str) -> Result<()> {
    if at.is_null() {
        return Err(Failure::argument(name, format!("it is null; pass a {}", T::NAME)));
    }
    check_aligned(at, name)?;
    // SAFETY: not null and aligned, so the first field can be read; it is a `usize` (`Versioned`).
    let given = unsafe { at.cast::<usize>().read() };
    if given == size_of::<T>() {
        return Ok(());
    }
    let (of, expected) = (T::NAME, size_of::<T>());
    Err(Failure::argument(
        name,
        format!(
            "its struct_bytes is {given}, but {of} has {expected} bytes; set all fields to 0 and struct_bytes to \
             sizeof({of}), and compile with the header of this version of the library"
        ),
    ))
}

/// The options at `at`, the parameter `name`.
///
/// # Safety
/// `at` is null, or valid for reads of the struct that it starts.
pub(crate) unsafe fn options<T: Versioned>(at: *const T, name: &str) -> Result<T> {
    // SAFETY: the caller's promise.
    unsafe { check_struct(at, name) }?;
    // SAFETY: not null, aligned, and of this size: checked above.
    Ok(unsafe { at.read() })
}

/// The value, unless it is 0, which stands for the default.
pub(crate) fn given<T: Default + PartialEq>(value: T) -> Option<T> {
    Some(value).filter(|value| *value != T::default())
}

/// The layout of a request. An alignment of 0 stands for `default`.
pub(crate) fn layout(bytes: usize, align: usize, default: usize) -> Result<Layout> {
    let align = given(align).unwrap_or(default);
    if !align.is_power_of_two() {
        let why = format!("{align} is not a power of two; pass 0 for an alignment of {default}");
        return Err(Failure::argument("align", why));
    }
    let too_large =
        |_| Failure::argument("bytes", format!("{bytes} bytes aligned to {align} exceed the address space"));
    Layout::from_size_align(bytes, align).map_err(too_large)
}
