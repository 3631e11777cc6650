//! Build information of this library: the PTX of its kernels, and the compiler that produced it.

/// The build information of a crate with kernels for sm_70 and sm_80 that its build script embeds.
/// A test checks that the kernels have the entry point `$entry`. `$prefix` begins the names of the
/// build script's variables.
#[doc(hidden)]
#[macro_export]
macro_rules! embedded_kernels {
    ($entry:literal) => {
        $crate::embedded_kernels!($entry, "WARPHEAP_");
    };
    ($entry:literal, $prefix:literal) => {
        /// The compiler of the kernels: `rustc 1.96.0 (...)`, or `none` without kernels.
        pub const DEVICE_COMPILER: &str = env!(concat!($prefix, "DEVICE_RUSTC"));

        /// Oldest first. From sm_80 on, one instruction sums over a warp.
        const IMAGES: [$crate::KernelImage; 2] = [
            $crate::KernelImage {
                arch: "sm_70",
                capability: (7, 0),
                ptx: include_str!(env!(concat!($prefix, "PTX_SM_70"))),
            },
            $crate::KernelImage {
                arch: "sm_80",
                capability: (8, 0),
                ptx: include_str!(env!(concat!($prefix, "PTX_SM_80"))),
            },
        ];
        const PTX_MISSING: &str = include_str!(env!(concat!($prefix, "PTX_MISSING_REASON_FILE")));

        /// The kernels of this crate, oldest architecture first. If this build has none, the reason
        /// and what to install.
        pub fn images() -> ::std::result::Result<&'static [$crate::KernelImage], &'static str> {
            if PTX_MISSING.is_empty() { Ok(&IMAGES) } else { Err(PTX_MISSING) }
        }

        #[test]
        fn either_there_are_kernels_or_a_reason() {
            match images() {
                Ok(images) => {
                    assert!(DEVICE_COMPILER.starts_with("rustc "));
                    for image in images {
                        assert!(image.ptx.contains(concat!(".visible .entry ", $entry)));
                        assert!(image.ptx.contains(&format!(".target {}", image.arch)));
                    }
                }
                Err(why) => {
                    assert!(!why.is_empty() && DEVICE_COMPILER == "none");
                    assert!(
                        std::env::var_os("WARPHEAP_REQUIRE_COMPILER").is_none_or(|it| it != "1"),
                        "{why}"
                    );
                }
            }
        }
    };
}

embedded_kernels!("heap_alloc_many(");
