//! Kernels as the host sees them, the arguments that a launch passes to them, and the layout of
//! arguments as kernel parameters.

use core::any::type_name;
use core::fmt;

/// The host side of a kernel. `warpheap_device::kernel!` generates the implementations.
///
/// # Safety
/// A PTX entry point of this name is compiled from the same declaration. Its parameters are those
/// of `Args` in the layout of [`KernelArgs::Abi`], and its safety requirements are those of
/// `run_thread`.
pub unsafe trait Kernel: Copy + Send + Sync + 'static {
    /// The arguments of a launch.
    type Args: KernelArgs;
    /// The entry point's name in the PTX.
    const NAME: &'static str;

    /// Runs the body as one thread of the grid, on the host.
    ///
    /// # Safety
    /// The safety requirements of the kernel hold. The caller is a lane of a kernel that was
    /// launched with `args`.
    unsafe fn run_thread(args: Self::Args);
}

/// A value that the host passes to a kernel.
///
/// # Safety
/// `Abi` is `repr(C)`, `repr(transparent)` or primitive, with the same layout on host and device.
/// Any thread may copy it. It holds no reference, and no host pointer that safe code of kernels
/// dereferences.
pub unsafe trait KernelArg: Copy + Send + 'static {
    /// The representation as a kernel parameter. `Self`, unless its layout may differ between
    /// compilers.
    type Abi: Copy + 'static;

    /// Converts the value to its representation as a parameter.
    fn to_abi(self) -> Self::Abi;

    /// Calls `found` with each range of device memory that the value refers to, as address and
    /// length in bytes, so that a launch can check that the range is still valid. Numbers and null
    /// refer to none.
    fn for_each_range(&self, found: &mut dyn FnMut(u64, u64)) {
        let _ = found;
    }
}

/// A type that a kernel can declare as a parameter.
///
/// # Safety
/// If the argument satisfies the requirements of its type, `from_abi` returns a value that safe
/// code of a kernel cannot misuse.
pub unsafe trait KernelParam: Copy + 'static {
    /// The type that the host passes for it.
    type Arg: KernelArg;

    /// Converts the parameter inside the kernel.
    ///
    /// # Safety
    /// The caller is a thread of a kernel that the host launched with this argument.
    unsafe fn from_abi(abi: Abi<Self>) -> Self;
}

/// The representation of a parameter as the host passes it.
pub type Abi<P> = <<P as KernelParam>::Arg as KernelArg>::Abi;

/// [`KernelParam`] for types that are their own argument.
#[doc(hidden)]
#[macro_export]
macro_rules! __param_is_itself {
    (unsafe $([$($bound:tt)*] $ty:ty),+) => {$(
        // SAFETY: the host held the same value.
        unsafe impl<$($bound)*> $crate::kernel::KernelParam for $ty {
            type Arg = Self;
            #[inline(always)]
            unsafe fn from_abi(abi: Self) -> Self {
                abi
            }
        }
    )+};
}

macro_rules! plain {
    ($($ty:ty),+) => {$(
        // SAFETY: a primitive value, the same on both sides.
        unsafe impl KernelArg for $ty {
            type Abi = Self;
            fn to_abi(self) -> Self {
                self
            }
        }
        __param_is_itself! { unsafe [] $ty }
    )+};
}
plain!(u8, i8, u16, i16, u32, i32, u64, i64, u128, i128, usize, isize, f32, f64, bool, char);

const _: () = assert!(size_of::<usize>() == 8, "host and device share addresses and `usize` of 64 bits");
const _: () = assert!(align_of::<u128>() == 16, "host and device align numbers of 128 bits to 16 bytes");

// SAFETY: an array of the elements' representations, on both sides.
unsafe impl<T: KernelArg, const N: usize> KernelArg for [T; N] {
    type Abi = [T::Abi; N];
    fn to_abi(self) -> Self::Abi {
        self.map(T::to_abi)
    }
    fn for_each_range(&self, found: &mut dyn FnMut(u64, u64)) {
        self.iter().for_each(|element| element.for_each_range(found));
    }
}

// SAFETY: the elements' `KernelParam` promises.
unsafe impl<T: KernelParam, const N: usize> KernelParam for [T; N] {
    type Arg = [T::Arg; N];
    #[inline(always)]
    unsafe fn from_abi(abi: Abi<Self>) -> Self {
        // SAFETY: a thread of a kernel launched with this argument, by the caller's promise.
        abi.map(|element| unsafe { T::from_abi(element) })
    }
}

/// Calls a macro with each non-empty prefix of a list.
macro_rules! all_lengths {
    (@ $macro:ident ($($done:tt)+)) => {
        $macro! { $($done)+ }
    };
    (@ $macro:ident ($($done:tt)+) $next:ident $i:tt $(, $($more:tt)+)?) => {
        $macro! { $($done)+ }
        all_lengths! { @ $macro ($($done)+, $next $i) $($($more)+)? }
    };
    ($macro:ident: $first:ident $i:tt, $($more:tt)+) => {
        all_lengths! { @ $macro ($first $i) $($more)+ }
    };
}

/// The first value of a tuple and the rest. The kernel's compiler may lay out a tuple itself
/// differently.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Pair<A, B>(A, B);

/// Nested [`Pair`]s of values, types, or patterns.
macro_rules! pairs {
    (types) => { () };
    (types $head:ty $(, $tail:ty)*) => { Pair<$head, pairs!(types $($tail),*)> };
    (values) => { () };
    (values $head:expr $(, $tail:expr)*) => { Pair($head, pairs!(values $($tail),*)) };
    (pattern) => { () };
    (pattern $head:ident $($tail:ident)*) => { Pair($head, pairs!(pattern $($tail)*)) };
}

macro_rules! tuple {
    ($($t:ident $i:tt),+) => {
        // SAFETY: a `repr(C)` pair of the first value and the rest.
        unsafe impl<$($t: KernelArg),+> KernelArg for ($($t,)+) {
            type Abi = pairs!(types $($t::Abi),+);
            fn to_abi(self) -> Self::Abi {
                pairs!(values $(self.$i.to_abi()),+)
            }
            fn for_each_range(&self, found: &mut dyn FnMut(u64, u64)) {
                $(self.$i.for_each_range(found);)+
            }
        }

        // SAFETY: the elements' `KernelParam` promises.
        unsafe impl<$($t: KernelParam),+> KernelParam for ($($t,)+) {
            type Arg = ($($t::Arg,)+);
            #[inline(always)]
            #[allow(non_snake_case)]
            unsafe fn from_abi(abi: Abi<Self>) -> Self {
                let pairs!(pattern $($t)+) = abi;
                // SAFETY: a thread of a kernel launched with this argument, by the caller's
                // promise.
                ($(unsafe { $t::from_abi($t) },)+)
            }
        }
    };
}
all_lengths! { tuple: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7 }

/// A type through which safe code accesses memory that only kernels may access. The host holds it
/// as an [`Arg`].
///
/// # Safety
/// The type is `repr(C)` or `repr(transparent)` with the same layout on host and device. Every
/// thread of a kernel may use a copy. It is neither `Send` nor `Sync`, so that safe code cannot
/// store a copy where it outlives the kernel.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a parameter of a kernel",
    note = "numbers, `bool`, `char`, `DevicePtr`, `DeviceSlice`, pools, arrays and tuples of them, and structs declared \
            with `kernel_arg!` or `device_data!` can"
)]
pub unsafe trait DeviceHandle: Copy + 'static {
    /// See [`KernelArg::for_each_range`].
    fn for_each_range(&self, found: &mut dyn FnMut(u64, u64));
}

// SAFETY: the kernel was launched with the handle, so its memory is valid until the kernel ends.
unsafe impl<H: DeviceHandle> KernelParam for H {
    type Arg = Arg<H>;
    #[inline(always)]
    unsafe fn from_abi(abi: Arg<H>) -> H {
        // SAFETY: a thread of a kernel launched with this argument, by the caller's promise.
        unsafe { abi.into_inner() }
    }
}

/// The host-side form of a handle, to be passed to launches. None of the handle's methods can be
/// called on it; a kernel receives the handle itself.
#[must_use = "it does nothing by itself; pass it to a launch"]
#[repr(transparent)]
pub struct Arg<H>(H);

impl<H: Copy> Clone for Arg<H> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<H: Copy> Copy for Arg<H> {}
// SAFETY: the handle is accessed only through `into_inner`; its caller promises a correct thread.
unsafe impl<H> Send for Arg<H> {}
// SAFETY: as for `Send`: accessed only through `into_inner`.
unsafe impl<H> Sync for Arg<H> {}

impl<H: DeviceHandle> Arg<H> {
    /// The argument for `handle`.
    ///
    /// # Safety
    /// Whenever a kernel launched with the argument runs, the requirements of the handle's
    /// constructor hold.
    pub const unsafe fn new(handle: H) -> Self {
        Arg(handle)
    }

    /// The handle.
    ///
    /// # Safety
    /// The caller is in a kernel that was launched with the argument, and drops the handle before
    /// the kernel ends. Alternatively, the caller uses no method of the handle that reads or writes
    /// device memory.
    #[inline(always)]
    pub const unsafe fn into_inner(self) -> H {
        self.0
    }
}

// SAFETY: `repr(transparent)` over a handle, which has the same layout on both sides.
unsafe impl<H: DeviceHandle> KernelArg for Arg<H> {
    type Abi = Self;
    fn to_abi(self) -> Self {
        self
    }
    fn for_each_range(&self, found: &mut dyn FnMut(u64, u64)) {
        self.0.for_each_range(found);
    }
}
__param_is_itself! { unsafe [H: DeviceHandle] Arg<H> }
#[cfg(feature = "rustacuda")]
// SAFETY: a bitwise copy is another argument for the same pool, valid on the device.
unsafe impl<H: DeviceHandle> rustacuda_core::DeviceCopy for Arg<H> {}
#[cfg(feature = "cust")]
// SAFETY: as for rustacuda: a bitwise copy is another argument for the same pool.
unsafe impl<H: DeviceHandle> cust_core::DeviceCopy for Arg<H> {}

impl<H: DeviceHandle> fmt::Debug for Arg<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arg<{}>(", type_name::<H>())?;
        let mut result = Ok(());
        self.0.for_each_range(&mut |address, bytes| {
            result = result.and_then(|()| write!(f, "{bytes} B at {address:#x}"));
        });
        result?;
        f.write_str(")")
    }
}

/// Size and alignment of one parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// Size in bytes.
    pub size: usize,
    /// Alignment in bytes.
    pub align: usize,
}

impl Param {
    const fn of<T>() -> Param {
        Param { size: size_of::<T>(), align: align_of::<T>() }
    }
}

mod sealed {
    /// A tuple of arguments.
    pub trait Tuple {}
}

/// The arguments of a kernel: a tuple of at most 16 [`KernelArg`]s.
pub trait KernelArgs: sealed::Tuple + Copy + Send + 'static {
    /// Size and alignment of each argument's representation, in order.
    const PARAMS: &'static [Param];
    /// The representations of all arguments.
    type Abi: Copy + 'static;

    /// Converts each argument to its representation, in order.
    fn to_abi(self) -> Self::Abi;
    /// Calls `each` with the address of each representation, in order.
    fn for_each_address(abi: &Self::Abi, each: impl FnMut(*const u8));
    /// Calls `found` with each range of device memory that an argument refers to: the argument's
    /// index, the range's address and its length in bytes.
    fn for_each_range(&self, found: impl FnMut(usize, u64, u64));
}

macro_rules! arguments {
    ($($t:ident $i:tt),*) => {
        impl<$($t),*> sealed::Tuple for ($($t,)*) {}

        impl<$($t: KernelArg),*> KernelArgs for ($($t,)*) {
            const PARAMS: &'static [Param] = &[$(Param::of::<$t::Abi>()),*];
            type Abi = ($($t::Abi,)*);
            #[allow(clippy::unused_unit)]
            fn to_abi(self) -> Self::Abi {
                ($(self.$i.to_abi(),)*)
            }
            #[allow(unused_mut, unused_variables)]
            fn for_each_address(abi: &Self::Abi, mut each: impl FnMut(*const u8)) {
                $(each((&raw const abi.$i).cast());)*
            }
            #[allow(unused_mut, unused_variables)]
            fn for_each_range(&self, mut found: impl FnMut(usize, u64, u64)) {
                $(self.$i.for_each_range(&mut |address, bytes| found($i, address, bytes));)*
            }
        }
    };
}
all_lengths! { arguments: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11, M 12, N 13, O 14, P 15 }
arguments!();
