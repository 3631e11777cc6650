//! Kernels: one function body is compiled to an entry point for the GPU and to a [`Kernel`] type
//! for the host.
//!
//! | parameter type | the host passes |
//! |---|---|
//! | numbers, `bool`, `char`, [`DevicePtr`], [`DeviceSlice`] | the same type |
//! | arrays and tuples (up to 8) of types in this table | arrays and tuples of their arguments |
//! | structs of [`kernel_arg!`] and [`device_data!`], `Pod` (feature `bytemuck`) | the same type |
//! | a [`DeviceHandle`]: [`Heap`], [`FreeList`], [`Bump`] | [`Arg`] of it |
//!
//! None of a handle's methods can be called on its [`Arg`]:
//!
//! ```compile_fail
//! # fn f(heap: warpheap_device::kernel::Arg<warpheap_device::heap::Heap>) {
//! heap.alloc(core::alloc::Layout::new::<u64>());
//! # }
//! ```
//!
//! [`kernel_arg!`]: crate::kernel_arg!
//! [`device_data!`]: crate::device_data!
//! [`Heap`]: crate::heap::Heap
//! [`FreeList`]: crate::freelist::FreeList
//! [`Bump`]: crate::bump::Bump

mod data;
mod test;

#[cfg(feature = "bytemuck")]
pub use data::Pod;
pub use data::{DeviceData, DevicePtr, DeviceSlice};
#[doc(hidden)]
pub use data::{argument_field, plain_field};
#[doc(hidden)]
pub use warpheap_machine::kernel::Pair;
pub use warpheap_machine::kernel::{
    Abi, Arg, DeviceHandle, Kernel, KernelArg, KernelArgs, KernelParam, Param,
};

/// Declares kernels.
///
/// On the GPU each kernel is an entry point. On the host it is a unit struct of the same name that
/// implements [`Kernel`](crate::kernel::Kernel). A launch takes this struct and the arguments.
///
/// A parameter's type implements [`KernelParam`](crate::kernel::KernelParam), and the host passes
/// that type's [`Arg`](crate::kernel::KernelParam::Arg). A kernel has at most 16 parameters.
///
/// # Safety
/// The author of a kernel promises:
///
/// - **K1, handles.** No [handle](crate::kernel::DeviceHandle) outlives the body: the body stores
///   none in a static, a thread-local variable, or memory that another kernel reads. The pool may
///   have been dropped when such a copy is used.
/// - **K2, ends.** The safety of the body does not depend on any frame returning or unwinding:
///   [`thread::exit`](crate::thread::exit), a trap, or an error in another thread ends a thread at
///   its current point.
/// - **K3, interleaving.** On the CPU the lanes of a warp take turns on one OS thread. They switch
///   at atomic operations, collectives, barriers,
///   [`thread::nanosleep`](crate::thread::nanosleep), reads of the clock and
///   [`warp::activemask`](crate::warp::activemask), and therefore at calls of pools. The body calls
///   none of these while a thread-local variable is initialised or borrowed (in the closure of
///   `LocalKey::with`), nor while code relies on the order in which frames of one OS thread end.
///   If two lanes initialised the same thread-local variable of std, a value in use would be
///   dropped.
/// - **K4, names.** On the GPU the kernel's name is an unmangled symbol. It must not be a symbol
///   that the compiler, `core` or a linked crate calls or defines, such as `memcpy` or `malloc`.
///
/// ```
/// use warpheap_device::{kernel, kernel::DeviceSlice, thread};
///
/// kernel! {
///     /// Doubles every value.
///     ///
///     /// # Safety
///     /// `values` is live and nothing else accesses it.
///     pub unsafe fn double(values: DeviceSlice<u32>) {
///         let i = thread::index_1d().into();
///         // SAFETY: each thread accesses only its own value.
///         if let Some(v) = unsafe { values.get(i) } {
///             // SAFETY: each thread accesses only its own value.
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
        $vis unsafe extern "ptx-kernel" fn $name($($arg: $crate::kernel::Abi<$ty>),*) {
            // SAFETY: the host launched this kernel with an argument for this parameter.
            $(let $arg: $ty = unsafe { <$ty as $crate::kernel::KernelParam>::from_abi($arg) };)*
            $body
        }

        $(#[$meta])*
        #[cfg(not(target_arch = "nvptx64"))]
        #[allow(non_camel_case_types)]
        #[$crate::__private::derive(
            $crate::__private::Clone, $crate::__private::Copy, $crate::__private::Debug
        )]
        $vis struct $name;

        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: the entry point above is generated from the same declaration.
        unsafe impl $crate::kernel::Kernel for $name {
            type Args = ($(<$ty as $crate::kernel::KernelParam>::Arg,)*);
            const NAME: &'static str = $crate::__private::stringify!($name);
            unsafe fn run_thread(($($arg,)*): Self::Args) {
                $(
                    let $arg = $crate::kernel::KernelArg::to_abi($arg);
                    // SAFETY: the caller is a lane of a kernel launched with this argument.
                    let $arg: $ty = unsafe { <$ty as $crate::kernel::KernelParam>::from_abi($arg) };
                )*
                $body
            }
        }
    )+};
}
