//! Tests that run in kernels.

/// Declares tests of code that is meant for kernels. Each test runs in 64 threads of a kernel: on
/// the CPU, in parallel and in a replay, and on the first GPU if there is one. It fails if a thread
/// panics, or if the heap has a live block, a fault or a violation afterwards.
///
/// The file with the tests is a kernel module: the crate's `build.rs` compiles it for the GPU. The
/// crate depends on `warpheap`.
///
/// ```ignore
/// // src/lib.rs
/// mod sums; // the code: `no_std`, with `alloc`
/// mod kernel_tests;
///
/// // build.rs
/// warpheap_build::Builder::module("src/kernel_tests").embed_with_prefix("TESTS_", ["sm_70"])
///
/// // src/kernel_tests/mod.rs
/// extern crate alloc;
/// warpheap_device::global_heap!();
///
/// warpheap_device::kernel_test! {
///     ptx: include_str!(env!("TESTS_PTX_SM_70"));
///     mod vectors {
///         fn a_vector_has_what_was_pushed() {
///             let all: alloc::vec::Vec<u32> = (0..100).collect();
///             assert_eq!(all.iter().sum::<u32>(), 4950);
///         }
///
///         #[should_panic(expected = "index out of bounds")]
///         fn an_index_is_checked() {
///             let all = alloc::vec![1, 2, 3];
///             assert_eq!(all[core::hint::black_box(3)], 4);
///         }
///     }
/// }
/// ```
///
/// `cargo test` lists `kernel_tests::vectors::on_devices::a_vector_has_what_was_pushed`.
/// Collections use a heap of 64 MiB, on the CPU if the tests have a `KernelAllocator` as their
/// `#[global_allocator]`. With an empty PTX only the CPU runs the tests. With
/// `WARPHEAP_REQUIRE_CUDA=1` a GPU is required.
///
/// A test with `#[should_panic]` runs on the CPU only, since it ends there. The modules are
/// compiled into the kernels of the crate also when no test is built: keep tests in a module of
/// their own.
///
/// The names of tests are symbols of the PTX: no two tests of a module have the same one. Kernels
/// have the requirements K1 to K4 of [`kernel!`](crate::kernel!).
#[macro_export]
macro_rules! kernel_test {
    (
        ptx: $ptx:expr;
        $(#[$about:meta])*
        mod $module:ident {
            $($(#[$meta:meta])* fn $name:ident() $body:block)+
        }
    ) => {
        $(#[$about])*
        pub mod $module {
            #[allow(unused_imports)]
            use super::*;

            $crate::kernel! {
                $(
                    /// A test.
                    ///
                    /// # Safety
                    /// None.
                    pub unsafe fn $name() $body
                )+
            }

            #[cfg(all(test, not(target_arch = "nvptx64")))]
            mod on_devices {
                #[allow(unused_imports)]
                use super::super::*;

                $(
                    $(#[$meta])*
                    #[test]
                    fn $name() {
                        // SAFETY: the kernel has no requirements.
                        unsafe { ::warpheap::__private::run_test(super::$name, $ptx) }
                    }
                )+
            }
        }
    };
}
