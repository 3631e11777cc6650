//! Plain data that host and device exchange in memory, and structs as kernel arguments.

use super::arg::KernelArg;
#[cfg(feature = "bytemuck")]
use super::arg::itself;
use super::memory::{DevicePtr, DeviceSlice};

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
itself! { [T: bytemuck::Pod + Send + Sync] Pod<T> }

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
