//! One module for each crate: it uses the crate as its documentation does, on data that is derived
//! from a number, and returns a checksum of the results. The host calls the same function and
//! compares.
//!
//! Each module is compiled to PTX of its own, by the feature with the name of the crate.

#![no_std]

extern crate alloc;

#[cfg(feature = "aho-corasick")]
pub mod aho_corasick;
#[cfg(feature = "arrayvec")]
pub mod arrayvec;
#[cfg(feature = "base64")]
pub mod base64;
#[cfg(feature = "bincode")]
pub mod bincode;
#[cfg(feature = "bit-set")]
pub mod bit_set;
#[cfg(feature = "bitvec")]
pub mod bitvec;
#[cfg(feature = "blake3")]
pub mod blake3;
#[cfg(feature = "ciborium")]
pub mod ciborium;
#[cfg(feature = "compact_str")]
pub mod compact_str;
#[cfg(feature = "crc")]
pub mod crc;
#[cfg(feature = "delaunator")]
pub mod delaunator;
#[cfg(feature = "euclid")]
pub mod euclid;
#[cfg(feature = "fixed")]
pub mod fixed;
#[cfg(feature = "fixedbitset")]
pub mod fixedbitset;
#[cfg(feature = "glam")]
pub mod glam;
#[cfg(feature = "half")]
pub mod half;
#[cfg(feature = "hashbrown")]
pub mod hashbrown;
#[cfg(feature = "heapless")]
pub mod heapless;
#[cfg(feature = "hex")]
pub mod hex;
#[cfg(feature = "id-arena")]
pub mod id_arena;
#[cfg(feature = "indexmap")]
pub mod indexmap;
#[cfg(feature = "itertools")]
pub mod itertools;
#[cfg(feature = "itoa")]
pub mod itoa;
#[cfg(feature = "lexical-core")]
pub mod lexical_core;
#[cfg(feature = "libm")]
pub mod libm;
#[cfg(feature = "lz4_flex")]
pub mod lz4_flex;
#[cfg(feature = "memchr")]
pub mod memchr;
#[cfg(feature = "miniz_oxide")]
pub mod miniz_oxide;
#[cfg(feature = "nalgebra")]
pub mod nalgebra;
#[cfg(feature = "nanoserde")]
pub mod nanoserde;
#[cfg(feature = "nom")]
pub mod nom;
#[cfg(feature = "num-bigint")]
pub mod num_bigint;
#[cfg(feature = "num-rational")]
pub mod num_rational;
mod numbers;
#[cfg(feature = "ordered-float")]
pub mod ordered_float;
#[cfg(feature = "petgraph")]
pub mod petgraph;
#[cfg(feature = "postcard")]
pub mod postcard;
#[cfg(feature = "rand_chacha")]
pub mod rand_chacha;
#[cfg(feature = "rand_pcg")]
pub mod rand_pcg;
#[cfg(feature = "rbpf")]
pub mod rbpf;
#[cfg(feature = "regex-automata")]
pub mod regex_automata;
#[cfg(feature = "rhai")]
pub mod rhai;
#[cfg(feature = "roaring")]
pub mod roaring;
#[cfg(feature = "robust")]
pub mod robust;
#[cfg(feature = "rpds")]
pub mod rpds;
#[cfg(feature = "rstar")]
pub mod rstar;
#[cfg(feature = "ruzstd")]
pub mod ruzstd;
#[cfg(feature = "ryu")]
pub mod ryu;
#[cfg(feature = "semver")]
pub mod semver;
#[cfg(feature = "serde_json")]
pub mod serde_json;
#[cfg(feature = "sha2")]
pub mod sha2;
#[cfg(feature = "siphasher")]
pub mod siphasher;
#[cfg(feature = "slab")]
pub mod slab;
#[cfg(feature = "slotmap")]
pub mod slotmap;
#[cfg(feature = "smallvec")]
pub mod smallvec;
#[cfg(feature = "smol_str")]
pub mod smol_str;
#[cfg(feature = "string-interner")]
pub mod string_interner;
#[cfg(feature = "thin-vec")]
pub mod thin_vec;
#[cfg(feature = "thunderdome")]
pub mod thunderdome;
#[cfg(feature = "tinyvec")]
pub mod tinyvec;
#[cfg(feature = "typed-arena")]
pub mod typed_arena;
#[cfg(feature = "unicode-segmentation")]
pub mod unicode_segmentation;
#[cfg(feature = "wasmi")]
pub mod wasmi;
#[cfg(feature = "weezl")]
pub mod weezl;
#[cfg(feature = "winnow")]
pub mod winnow;

pub use numbers::{Random, Sum};

warpheap_device::global_heap!();

/// Receives each crate of the enabled features.
#[cfg(not(target_arch = "nvptx64"))]
pub trait Visitor {
    /// The crate `name`: its checksum, and the kernel that computes it.
    fn visit<K>(&mut self, name: &'static str, checksum: fn(u64) -> u64, kernel: K)
    where
        K: warpheap_device::kernel::Kernel<Args = (warpheap_device::kernel::DeviceSlice<u64>,)>;
}

/// The kernels, and a function that visits them.
macro_rules! kernels {
    ($($name:literal $module:ident $kernel:ident,)*) => {
        $(
            #[cfg(feature = $name)]
            warpheap_device::kernel! {
                /// Thread `i` writes the checksum of `i`.
                ///
                /// # Safety
                /// `out` is live, and only this kernel accesses it.
                pub unsafe fn $kernel(out: warpheap_device::kernel::DeviceSlice<u64>) {
                    let i = u64::from(warpheap_device::thread::index_1d());
                    if i < out.len() {
                        // SAFETY: each thread writes its own element, which is in bounds.
                        unsafe { out.set(i, $module::checksum(i)) };
                    }
                }
            }
        )*

        /// Calls `visitor` for each crate of the enabled features.
        #[cfg(not(target_arch = "nvptx64"))]
        pub fn visit(visitor: &mut impl Visitor) {
            $(
                #[cfg(feature = $name)]
                visitor.visit($name, $module::checksum, $kernel);
            )*
        }
    };
}

kernels! {
    "hashbrown" hashbrown kernel_hashbrown,
    "indexmap" indexmap kernel_indexmap,
    "slab" slab kernel_slab,
    "slotmap" slotmap kernel_slotmap,
    "rpds" rpds kernel_rpds,
    "fixedbitset" fixedbitset kernel_fixedbitset,
    "bit-set" bit_set kernel_bit_set,
    "roaring" roaring kernel_roaring,
    "smallvec" smallvec kernel_smallvec,
    "arrayvec" arrayvec kernel_arrayvec,
    "tinyvec" tinyvec kernel_tinyvec,
    "heapless" heapless kernel_heapless,
    "thin-vec" thin_vec kernel_thin_vec,
    "petgraph" petgraph kernel_petgraph,
    "miniz_oxide" miniz_oxide kernel_miniz_oxide,
    "lz4_flex" lz4_flex kernel_lz4_flex,
    "weezl" weezl kernel_weezl,
    "ruzstd" ruzstd kernel_ruzstd,
    "serde_json" serde_json kernel_serde_json,
    "postcard" postcard kernel_postcard,
    "ciborium" ciborium kernel_ciborium,
    "bincode" bincode kernel_bincode,
    "nanoserde" nanoserde kernel_nanoserde,
    "base64" base64 kernel_base64,
    "hex" hex kernel_hex,
    "regex-automata" regex_automata kernel_regex_automata,
    "aho-corasick" aho_corasick kernel_aho_corasick,
    "memchr" memchr kernel_memchr,
    "unicode-segmentation" unicode_segmentation kernel_unicode_segmentation,
    "itoa" itoa kernel_itoa,
    "ryu" ryu kernel_ryu,
    "lexical-core" lexical_core kernel_lexical_core,
    "winnow" winnow kernel_winnow,
    "nom" nom kernel_nom,
    "smol_str" smol_str kernel_smol_str,
    "compact_str" compact_str kernel_compact_str,
    "semver" semver kernel_semver,
    "itertools" itertools kernel_itertools,
    "num-bigint" num_bigint kernel_num_bigint,
    "num-rational" num_rational kernel_num_rational,
    "libm" libm kernel_libm,
    "fixed" fixed kernel_fixed,
    "half" half kernel_half,
    "rand_chacha" rand_chacha kernel_rand_chacha,
    "rand_pcg" rand_pcg kernel_rand_pcg,
    "crc" crc kernel_crc,
    "sha2" sha2 kernel_sha2,
    "blake3" blake3 kernel_blake3,
    "siphasher" siphasher kernel_siphasher,
    "ordered-float" ordered_float kernel_ordered_float,
    "bitvec" bitvec kernel_bitvec,
    "nalgebra" nalgebra kernel_nalgebra,
    "glam" glam kernel_glam,
    "rstar" rstar kernel_rstar,
    "euclid" euclid kernel_euclid,
    "robust" robust kernel_robust,
    "delaunator" delaunator kernel_delaunator,
    "rhai" rhai kernel_rhai,
    "wasmi" wasmi kernel_wasmi,
    "rbpf" rbpf kernel_rbpf,
    "typed-arena" typed_arena kernel_typed_arena,
    "thunderdome" thunderdome kernel_thunderdome,
    "id-arena" id_arena kernel_id_arena,
    "string-interner" string_interner kernel_string_interner,
}
