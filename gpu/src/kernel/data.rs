//! Plain data that host and device exchange in memory, and structs as kernel arguments.

use warpheap_machine::__param_is_itself;
use warpheap_machine::kernel::KernelArg;

/// Plain data that host and device both read and write, byte for byte.
/// [`device_data!`](crate::device_data!) generates checked implementations.
///
/// # Safety
/// Any bytes are a valid value of the type. It has no padding. It is `repr(C)`, `repr(transparent)`
/// or a number, with the same layout on host and device. It holds no reference, and no host pointer
/// that safe code dereferences.
pub unsafe trait DeviceData: Copy + Send + Sync + 'static {}

macro_rules! plain {
    ($($ty:ty),+) => {$(
        // SAFETY: a number, the same on both sides.
        unsafe impl DeviceData for $ty {}
    )+};
}
plain!(u8, i8, u16, i16, u32, i32, u64, i64, u128, i128, usize, isize, f32, f64);

// SAFETY: an array has no padding between its elements.
unsafe impl<T: DeviceData, const N: usize> DeviceData for [T; N] {}
// SAFETY: an address; any bytes are a valid value.
unsafe impl<T: 'static> DeviceData for DevicePtr<T> {}
// SAFETY: an address and a length; any bytes are a valid value.
unsafe impl<T: 'static> DeviceData for DeviceSlice<T> {}

/// Plain data of a type that implements [`bytemuck::Pod`], as an argument or in device memory.
#[cfg(feature = "bytemuck")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Pod<T>(pub T);

#[cfg(feature = "bytemuck")]
// SAFETY: `Pod` promises a stable layout without padding, for which any bytes are a valid value.
unsafe impl<T: bytemuck::Pod + Send + Sync> DeviceData for Pod<T> {}

#[cfg(feature = "bytemuck")]
// SAFETY: `Pod` promises a stable layout without references.
unsafe impl<T: bytemuck::Pod + Send + Sync> KernelArg for Pod<T> {
    type Abi = Self;
    fn to_abi(self) -> Self {
        self
    }
}
#[cfg(feature = "bytemuck")]
__param_is_itself! { unsafe [T: bytemuck::Pod + Send + Sync] Pod<T> }

/// Compiles only if the field's type is passed to kernels unchanged (`Abi = Self`).
#[doc(hidden)]
pub const fn argument_field<S, F: KernelArg<Abi = F>>(_: fn(&S) -> &F) {}

/// The size of the field in bytes. Compiles only if its type is [`DeviceData`].
#[doc(hidden)]
pub const fn plain_field<S, F: DeviceData>(_: fn(&S) -> &F) -> usize {
    size_of::<F>()
}

/// Declares structs that can be kernel arguments. They are `repr(C)`, `Copy` and `Clone`; other
/// traits can be derived.
///
/// The macro checks that every field is passed unchanged: a number, `bool` or `char`, an array,
/// such a struct, or device memory. A tuple is not accepted, because its layout is up to the
/// compiler.
///
/// ```
/// use warpheap_device::kernel::DevicePtr;
///
/// warpheap_device::kernel_arg! {
///     /// What a solver takes.
///     #[derive(Debug, PartialEq)]
///     pub struct Settings {
///         /// The largest error.
///         pub tolerance: f64,
///         pub relaxed: bool,
///     }
/// }
/// ```
#[macro_export]
macro_rules! kernel_arg {
    ($(
        $(#[doc = $doc:expr])*
        $(#[derive($($derive:path),+ $(,)?)])?
        $vis:vis struct $name:ident {
            $($(#[doc = $field_doc:expr])* $field_vis:vis $field:ident: $ty:ty),* $(,)?
        }
    )+) => {$(
        $(#[doc = $doc])*
        $(#[$crate::__private::derive($($derive),+)])?
        #[$crate::__private::derive($crate::__private::Clone, $crate::__private::Copy)]
        #[repr(C)]
        $vis struct $name {
            $($(#[doc = $field_doc])* $field_vis $field: $ty),*
        }

        // The field types are taken from the fields: `$ty` could have a different meaning here.
        const _: () = {
            $($crate::kernel::argument_field(|value: &$name| &value.$field);)*
        };

        // SAFETY: `repr(C)`, and each field is an argument that is passed unchanged.
        unsafe impl $crate::kernel::KernelArg for $name {
            type Abi = Self;
            fn to_abi(self) -> Self {
                self
            }
            fn for_each_range(&self, found: &mut dyn FnMut(u64, u64)) {
                let _ = &found;
                $($crate::kernel::KernelArg::for_each_range(&self.$field, found);)*
            }
        }
        // SAFETY: the host held the same value.
        unsafe impl $crate::kernel::KernelParam for $name {
            type Arg = Self;
            #[inline(always)]
            unsafe fn from_abi(abi: Self) -> Self {
                abi
            }
        }
    )+};
}

/// Declares structs of plain data: they implement [`DeviceData`](crate::kernel::DeviceData), and
/// are kernel arguments like those of [`kernel_arg!`](crate::kernel_arg!). The macro checks that
/// every field is plain data, and that the struct has no padding.
///
/// ```
/// warpheap_device::device_data! {
///     /// A particle.
///     #[derive(Debug, Default, PartialEq)]
///     pub struct Particle {
///         pub position: [f32; 3],
///         pub mass: f32,
///     }
/// }
/// ```
///
/// ```compile_fail
/// warpheap_device::device_data! {
///     pub struct Padded { a: u8, b: u32 }
/// }
/// ```
#[macro_export]
macro_rules! device_data {
    ($(
        $(#[doc = $doc:expr])*
        $(#[derive($($derive:path),+ $(,)?)])?
        $vis:vis struct $name:ident {
            $($(#[doc = $field_doc:expr])* $field_vis:vis $field:ident: $ty:ty),* $(,)?
        }
    )+) => {$(
        $crate::kernel_arg! {
            $(#[doc = $doc])*
            $(#[derive($($derive),+)])?
            $vis struct $name {
                $($(#[doc = $field_doc])* $field_vis $field: $ty),*
            }
        }

        const _: () = {
            let fields = 0 $(+ $crate::kernel::plain_field(|value: &$name| &value.$field))*;
            $crate::__private::assert!(
                $crate::__private::size_of::<$name>() == fields,
                $crate::__private::concat!(
                    "`",
                    $crate::__private::stringify!($name),
                    "` has padding: order its fields by size, or add fields in its place"
                ),
            );
        };

        // SAFETY: `repr(C)` without padding, with fields for which any bytes are valid values.
        unsafe impl $crate::kernel::DeviceData for $name {}
    )+};
}

/// An address in device memory, for kernels to read and write. On the host it is only a number.
#[derive(Debug)]
#[repr(transparent)]
pub struct DevicePtr<T>(pub *mut T);

impl<T> Clone for DevicePtr<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for DevicePtr<T> {}
// SAFETY: an address alone gives no access. Every use of it is `unsafe` and states its
// requirements.
unsafe impl<T> Send for DevicePtr<T> {}
// SAFETY: as for `Send`: an address alone gives no access.
unsafe impl<T> Sync for DevicePtr<T> {}

impl<T> DevicePtr<T> {
    /// The null address.
    pub const fn null() -> Self {
        DevicePtr(core::ptr::null_mut())
    }
}

// SAFETY: an address of 64 bits on both sides. Raw pointers are not `Send`, so `DevicePtr` wraps
// them.
unsafe impl<T: 'static> KernelArg for DevicePtr<T> {
    type Abi = Self;
    fn to_abi(self) -> Self {
        self
    }
    fn for_each_range(&self, found: &mut dyn FnMut(u64, u64)) {
        if !self.0.is_null() {
            found(self.0 as u64, size_of::<T>() as u64);
        }
    }
}
__param_is_itself! { unsafe [T: 'static] DevicePtr<T> }

/// An array in device memory: an address and a length, neither of which is checked. Reading or
/// writing it is `unsafe`.
#[derive(Debug)]
#[repr(C)]
pub struct DeviceSlice<T> {
    ptr: *mut T,
    len: u64,
}

impl<T> Clone for DeviceSlice<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for DeviceSlice<T> {}
// SAFETY: as for `DevicePtr`: an address alone gives no access.
unsafe impl<T> Send for DeviceSlice<T> {}
// SAFETY: as for `DevicePtr`: an address alone gives no access.
unsafe impl<T> Sync for DeviceSlice<T> {}

const _: () = assert!(size_of::<DeviceSlice<u8>>() == 16 && align_of::<DeviceSlice<u8>>() == 8);

// SAFETY: an address and a length, the same on both sides.
unsafe impl<T: 'static> KernelArg for DeviceSlice<T> {
    type Abi = Self;
    fn to_abi(self) -> Self {
        self
    }
    fn for_each_range(&self, found: &mut dyn FnMut(u64, u64)) {
        if self.len > 0 {
            found(self.ptr as u64, self.len.saturating_mul(size_of::<T>() as u64));
        }
    }
}
__param_is_itself! { unsafe [T: 'static] DeviceSlice<T> }

impl<T: Copy> DeviceSlice<T> {
    /// `len` values that start at `ptr`.
    ///
    /// # Safety
    /// The memory holds `len` values in one allocation, is aligned for `T`, and stays valid while
    /// kernels use the slice.
    pub const unsafe fn from_raw_parts(ptr: *mut T, len: u64) -> Self {
        DeviceSlice { ptr, len }
    }

    /// The number of values.
    #[inline(always)]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether the slice has no values.
    #[inline(always)]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the first value.
    #[inline(always)]
    pub const fn as_ptr(&self) -> *mut T {
        self.ptr
    }

    /// The value at `i`, or `None` past the end.
    ///
    /// # Safety
    /// The slice's memory is live, aligned for `T`, and accessible to the calling thread: a slice
    /// can hold any address, and the host cannot access a GPU's memory. The value was written, and
    /// no other thread writes it at the same time.
    #[inline(always)]
    pub unsafe fn get(&self, i: u64) -> Option<T> {
        if i >= self.len {
            return None;
        }
        // SAFETY: in bounds; the caller's first promise: live memory.
        let place = unsafe { self.ptr.add(i as usize) };
        // SAFETY: the caller's promises: live, aligned, accessible memory, and no race.
        Some(unsafe { place.read() })
    }

    /// Writes `value` at `i`. Returns whether `i` is in bounds.
    ///
    /// # Safety
    /// The slice's memory is live, aligned for `T`, and accessible to the calling thread, as for
    /// [`get`](Self::get). No other thread reads or writes the value at `i` at the same time.
    #[inline(always)]
    pub unsafe fn set(&self, i: u64, value: T) -> bool {
        if i >= self.len {
            return false;
        }
        // SAFETY: in bounds; the caller's first promise: live memory.
        let place = unsafe { self.ptr.add(i as usize) };
        // SAFETY: the caller's promises: live, aligned, accessible memory, and no race.
        unsafe { place.write(value) };
        true
    }
}
