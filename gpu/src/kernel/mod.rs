//! Kernels: one function body that is an entry point on the GPU and a callable description on the host.
//!
//! | type of a parameter | what the host passes |
//! |---|---|
//! | numbers, `bool`, `char`, [`DevicePtr`], [`DeviceSlice`] | the same |
//! | arrays and tuples (up to 8) of those in this table | arrays and tuples |
//! | structs of [`kernel_arg!`](crate::kernel_arg!) and [`device_data!`](crate::device_data!), `Pod` (feature `bytemuck`) | the same |
//! | [`Heap`](crate::heap::Heap), [`FreeList`](crate::freelist::FreeList), [`Bump`](crate::bump::Bump): a [`DeviceHandle`] | [`Arg`] of it |

mod arg;
mod data;
mod memory;

#[doc(hidden)]
pub use arg::Pair;
pub use arg::{Abi, Arg, DeviceHandle, KernelArg, KernelArgs, KernelParam, Param};
pub use data::DeviceData;
#[cfg(feature = "bytemuck")]
pub use data::Pod;
pub use memory::{DevicePtr, DeviceSlice};

/// A kernel as the host sees it. [`kernel!`](crate::kernel!) writes the implementations.
///
/// # Safety
/// An entry point of this name in PTX is compiled from the same declaration: its parameters are those of `Args`,
/// as [`KernelArgs::Abi`] lays them out, and it asks of its caller what `run_thread` does.
pub unsafe trait Kernel: Copy + Send + Sync + 'static {
    /// What a launch must pass.
    type Args: KernelArgs;
    /// The entry point's name in the PTX.
    const NAME: &'static str;

    /// Runs the body as one thread of the grid, on the host.
    ///
    /// # Safety
    /// What the kernel asks of its caller; and the caller is a lane of a kernel that was launched with `args`.
    unsafe fn run_thread(args: Self::Args);
}

/// Declares kernels.
///
/// On the GPU each becomes an entry point; on the host, a unit struct of the same name that implements
/// [`Kernel`](crate::kernel::Kernel), to be given to a launch together with its arguments.
///
/// A parameter's type implements [`KernelParam`](crate::kernel::KernelParam), and the host passes that type's
/// [`Arg`](crate::kernel::KernelParam::Arg). A kernel has at most 16 parameters.
///
/// # Safety
/// A kernel's author promises:
///
/// - **K1, handles.** The body keeps no [handle](crate::kernel::DeviceHandle) beyond its end: not in a static, a
///   thread-local variable, or memory that another kernel reads. The pool may be gone when that is used.
/// - **K2, ends.** None of its frames relies on being left: [`thread::exit`](crate::thread::exit), a trap, or an error of
///   another thread ends a thread where it stands.
/// - **K3, interleaving.** On the CPU the lanes of a warp take turns on one OS thread. They change at atomic operations,
///   collectives, barriers, [`thread::nanosleep`](crate::thread::nanosleep), reads of the clock and
///   [`warp::activemask`](crate::warp::activemask), and so at calls of pools. None of these is called while a thread-local
///   variable is initialised or borrowed (in the closure of `LocalKey::with`), nor while code relies on the order in which
///   frames of one OS thread end. Two lanes that initialise the same variable of std would drop a value in use.
/// - **K4, names.** On the GPU the kernel's name is a symbol without mangling. It is none that the compiler, `core` or a
///   linked crate calls or defines: not `memcpy`, not `malloc`.
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
        // SAFETY: the entry point above is this declaration's.
        unsafe impl $crate::kernel::Kernel for $name {
            type Args = ($(<$ty as $crate::kernel::KernelParam>::Arg,)*);
            const NAME: &'static str = $crate::__private::stringify!($name);
            unsafe fn run_thread(($($arg,)*): Self::Args) {
                $(
                    let $arg = $crate::kernel::KernelArg::to_abi($arg);
                    // SAFETY: the caller is a lane of a kernel that was launched with this argument.
                    let $arg: $ty = unsafe { <$ty as $crate::kernel::KernelParam>::from_abi($arg) };
                )*
                $body
            }
        }
    )+};
}
