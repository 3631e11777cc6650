//! Kernels: one function body that is an entry point on the GPU and a callable description on the host.

/// A value that can be passed to a kernel by the host, bit for bit.
///
/// # Safety
/// The type is `repr(C)` or `repr(transparent)` with the same layout on host and device, holds no
/// reference and no host pointer, and any thread may copy it.
pub unsafe trait KernelArg: Copy + Send + 'static {
    /// The device memory that the value names, so that a launch can check that it is still there:
    /// address and length in bytes. `None` for plain numbers and null.
    fn names(&self) -> Option<(u64, u64)> {
        None
    }
}

macro_rules! plain {
    ($($ty:ty),+) => {$(
        // SAFETY: a number, the same on both sides.
        unsafe impl KernelArg for $ty {}
    )+};
}
plain!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64);

// SAFETY: an address, 64 bits on both sides. Raw pointers are not `Send`, so they travel in `DevicePtr`.
unsafe impl<T: Copy + 'static> KernelArg for DevicePtr<T> {
    fn names(&self) -> Option<(u64, u64)> {
        (!self.0.is_null()).then_some((self.0 as u64, size_of::<T>() as u64))
    }
}

/// An address in device memory. To be read and written by kernels; on the host it is only a number.
#[derive(Debug)]
#[repr(transparent)]
pub struct DevicePtr<T>(pub *mut T);

impl<T> Clone for DevicePtr<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for DevicePtr<T> {}
// SAFETY: an address alone gives no access; every use of it is `unsafe` and says what it needs.
unsafe impl<T> Send for DevicePtr<T> {}
// SAFETY: the same.
unsafe impl<T> Sync for DevicePtr<T> {}

impl<T> DevicePtr<T> {
    /// No address.
    pub const fn null() -> Self {
        DevicePtr(core::ptr::null_mut())
    }
}

/// An array in device memory.
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
// SAFETY: as for `DevicePtr`.
unsafe impl<T> Send for DeviceSlice<T> {}
// SAFETY: the same.
unsafe impl<T> Sync for DeviceSlice<T> {}

const _: () = assert!(size_of::<DeviceSlice<u8>>() == 16 && align_of::<DeviceSlice<u8>>() == 8);

// SAFETY: an address and a length, the same on both sides.
unsafe impl<T: Copy + 'static> KernelArg for DeviceSlice<T> {
    fn names(&self) -> Option<(u64, u64)> {
        (self.len > 0).then_some((self.ptr as u64, self.len * size_of::<T>() as u64))
    }
}

impl<T: Copy> DeviceSlice<T> {
    /// `len` values from `ptr` on.
    ///
    /// # Safety
    /// The memory is there for as long as kernels use the slice.
    pub const unsafe fn from_raw_parts(ptr: *mut T, len: u64) -> Self {
        DeviceSlice { ptr, len }
    }

    /// How many values.
    #[inline(always)]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are none.
    #[inline(always)]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where it starts.
    #[inline(always)]
    pub const fn as_ptr(&self) -> *mut T {
        self.ptr
    }

    /// The value at `i`, or `None` past the end.
    ///
    /// # Safety
    /// The value was written, and no other thread writes it now.
    #[inline(always)]
    pub unsafe fn get(&self, i: u64) -> Option<T> {
        if i >= self.len {
            return None;
        }
        // SAFETY: in bounds.
        let place = unsafe { self.ptr.add(i as usize) };
        // SAFETY: live memory, by `from_raw_parts`; the caller excludes a race.
        Some(unsafe { place.read() })
    }

    /// Writes `value` at `i`. Returns whether that is inside.
    ///
    /// # Safety
    /// No other thread touches the value at `i` now.
    #[inline(always)]
    pub unsafe fn set(&self, i: u64, value: T) -> bool {
        if i >= self.len {
            return false;
        }
        // SAFETY: in bounds.
        let place = unsafe { self.ptr.add(i as usize) };
        // SAFETY: live memory, by `from_raw_parts`; the caller excludes a race.
        unsafe { place.write(value) };
        true
    }
}

/// Size and alignment of one parameter, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// Bytes.
    pub size: usize,
    /// Bytes.
    pub align: usize,
}

/// The arguments of a kernel: a tuple of [`KernelArg`]s.
pub trait KernelArgs: Copy + Send + 'static {
    /// Size and alignment of each, in order.
    const PARAMS: &'static [Param];
    /// Calls `f` with the address of each argument and the device memory it names, in order.
    fn for_each(&self, f: impl FnMut(*const u8, Option<(u64, u64)>));
}

macro_rules! tuple {
    ($($t:ident $i:tt),*) => {
        impl<$($t: KernelArg),*> KernelArgs for ($($t,)*) {
            const PARAMS: &'static [Param] = &[$(Param { size: size_of::<$t>(), align: align_of::<$t>() }),*];
            #[allow(unused_mut, unused_variables)]
            fn for_each(&self, mut f: impl FnMut(*const u8, Option<(u64, u64)>)) {
                $(f((&raw const self.$i).cast(), self.$i.names());)*
            }
        }
    };
}
tuple!();
tuple!(A 0);
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
tuple!(A 0, B 1, C 2, D 3, E 4);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);

/// A kernel as the host sees it. [`kernel!`](crate::kernel!) writes the implementations.
pub trait Kernel: Copy + Send + Sync + 'static {
    /// What a launch must pass.
    type Args: KernelArgs;
    /// The entry point's name in the PTX.
    const NAME: &'static str;

    /// Runs the body as one thread of the grid, on the host.
    ///
    /// # Safety
    /// What the kernel asks of its caller.
    unsafe fn run_thread(args: Self::Args);
}

/// Declares kernels.
///
/// On the GPU each becomes an entry point; on the host, a unit struct of the same name that implements
/// [`Kernel`](crate::kernel::Kernel), to be given to a launch together with its arguments.
///
/// ```
/// use warpheap_device::{kernel, kernel::DeviceSlice, thread};
///
/// kernel! {
///     /// Doubles every value.
///     ///
///     /// # Safety
///     /// `values` is live and no one else touches it.
///     pub unsafe fn double(values: DeviceSlice<u32>) {
///         let i = thread::index_1d().into();
///         // SAFETY: each thread touches its own value.
///         if let Some(v) = unsafe { values.get(i) } {
///             // SAFETY: the same.
///             unsafe { values.set(i, 2 * v) };
///         }
///     }
/// }
/// ```
#[macro_export]
macro_rules! kernel {
    ($($(#[$meta:meta])* $vis:vis unsafe fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block)+) => {$(
        $(#[$meta])*
        #[cfg(target_arch = "nvptx64")]
        #[unsafe(no_mangle)]
        $vis unsafe extern "ptx-kernel" fn $name($($arg: $ty),*) $body

        $(#[$meta])*
        #[cfg(not(target_arch = "nvptx64"))]
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Debug)]
        $vis struct $name;

        #[cfg(not(target_arch = "nvptx64"))]
        impl $crate::kernel::Kernel for $name {
            type Args = ($($ty,)*);
            const NAME: &'static str = stringify!($name);
            unsafe fn run_thread(($($arg,)*): Self::Args) $body
        }
    )+};
}
