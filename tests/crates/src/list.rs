//! The crates, in the order of the page.

/// A crate of the suite.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name on crates.io, which is also that of its feature.
    pub name: &'static str,
    /// Its kind, a heading of the page.
    pub kind: &'static str,
    /// Whether it is compiled in a few seconds, and part of the default set.
    pub is_small: bool,
    /// The stack that each thread of its kernel gets on a GPU.
    pub stack_bytes: u64,
    /// Memory of the heap for each thread: more than it allocates.
    pub heap_bytes: u64,
    /// Whether NVIDIA's assembler compiles it without a crash, and with less than 24 GB of memory.
    pub assembles: bool,
}

const SMALL: Entry = Entry {
    name: "",
    kind: "",
    is_small: true,
    stack_bytes: 32 << 10,
    heap_bytes: 256 << 10,
    assembles: true,
};

const LARGE: Entry = Entry { is_small: false, ..SMALL };

/// All crates.
pub const LIST: &[Entry] = &[
    Entry { name: "hashbrown", kind: "maps", ..SMALL },
    Entry { name: "indexmap", kind: "maps", ..SMALL },
    Entry { name: "slab", kind: "maps", ..SMALL },
    Entry { name: "slotmap", kind: "maps", ..SMALL },
    Entry { name: "rpds", kind: "maps", ..SMALL },
    Entry { name: "fixedbitset", kind: "maps", ..SMALL },
    Entry { name: "bit-set", kind: "maps", ..SMALL },
    Entry { name: "roaring", kind: "maps", ..LARGE },
    Entry { name: "smallvec", kind: "small vectors", ..SMALL },
    Entry { name: "arrayvec", kind: "small vectors", ..SMALL },
    Entry { name: "tinyvec", kind: "small vectors", ..SMALL },
    Entry { name: "heapless", kind: "small vectors", ..SMALL },
    Entry { name: "thin-vec", kind: "small vectors", ..SMALL },
    Entry { name: "petgraph", kind: "graphs", ..SMALL },
    Entry {
        name: "miniz_oxide",
        kind: "compression",
        stack_bytes: 128 << 10,
        heap_bytes: 1024 << 10,
        ..SMALL
    },
    Entry { name: "lz4_flex", kind: "compression", ..SMALL },
    Entry { name: "weezl", kind: "compression", ..SMALL },
    Entry { name: "ruzstd", kind: "compression", stack_bytes: 192 << 10, heap_bytes: 1024 << 10, ..LARGE },
    Entry { name: "serde_json", kind: "serialisation", ..LARGE },
    Entry { name: "postcard", kind: "serialisation", ..SMALL },
    Entry { name: "ciborium", kind: "serialisation", ..LARGE },
    Entry { name: "bincode", kind: "serialisation", ..SMALL },
    Entry { name: "nanoserde", kind: "serialisation", ..SMALL },
    Entry { name: "base64", kind: "serialisation", ..SMALL },
    Entry { name: "hex", kind: "serialisation", ..SMALL },
    Entry { name: "regex-automata", kind: "text", ..LARGE },
    Entry { name: "aho-corasick", kind: "text", assembles: false, ..LARGE },
    Entry { name: "memchr", kind: "text", ..SMALL },
    Entry { name: "unicode-segmentation", kind: "text", ..SMALL },
    Entry { name: "itoa", kind: "text", ..SMALL },
    Entry { name: "ryu", kind: "text", ..SMALL },
    Entry { name: "lexical-core", kind: "text", ..SMALL },
    Entry { name: "winnow", kind: "text", ..SMALL },
    Entry { name: "nom", kind: "text", ..SMALL },
    Entry { name: "smol_str", kind: "text", ..SMALL },
    Entry { name: "compact_str", kind: "text", ..SMALL },
    Entry { name: "semver", kind: "text", ..SMALL },
    Entry { name: "itertools", kind: "text", ..SMALL },
    Entry { name: "num-bigint", kind: "numbers", ..LARGE },
    Entry { name: "num-rational", kind: "numbers", ..SMALL },
    Entry { name: "libm", kind: "numbers", ..SMALL },
    Entry { name: "fixed", kind: "numbers", ..LARGE },
    Entry { name: "half", kind: "numbers", ..LARGE },
    Entry { name: "rand_chacha", kind: "numbers", ..SMALL },
    Entry { name: "rand_pcg", kind: "numbers", ..SMALL },
    Entry { name: "crc", kind: "numbers", ..SMALL },
    Entry { name: "sha2", kind: "numbers", ..LARGE },
    Entry { name: "blake3", kind: "numbers", ..LARGE },
    Entry { name: "siphasher", kind: "numbers", ..SMALL },
    Entry { name: "ordered-float", kind: "numbers", ..SMALL },
    Entry { name: "bitvec", kind: "numbers", ..LARGE },
    Entry { name: "nalgebra", kind: "geometry", ..LARGE },
    Entry { name: "glam", kind: "geometry", ..SMALL },
    Entry { name: "rstar", kind: "geometry", ..LARGE },
    Entry { name: "euclid", kind: "geometry", ..SMALL },
    Entry { name: "robust", kind: "geometry", ..SMALL },
    Entry { name: "delaunator", kind: "geometry", ..SMALL },
    Entry {
        name: "rhai",
        kind: "interpreters",
        stack_bytes: 128 << 10,
        heap_bytes: 1024 << 10,
        assembles: false,
        ..LARGE
    },
    Entry { name: "wasmi", kind: "interpreters", stack_bytes: 64 << 10, assembles: false, ..LARGE },
    Entry { name: "rbpf", kind: "interpreters", ..SMALL },
    Entry { name: "typed-arena", kind: "arenas", ..SMALL },
    Entry { name: "thunderdome", kind: "arenas", ..SMALL },
    Entry { name: "id-arena", kind: "arenas", ..SMALL },
    Entry { name: "string-interner", kind: "arenas", ..SMALL },
];

/// The crate `name`.
pub fn find(name: &str) -> Option<&'static Entry> {
    LIST.iter().find(|entry| entry.name == name)
}

/// The version of `name`, which the manifest pins.
pub fn version(name: &str) -> &'static str {
    let manifest = include_str!("../kernels/Cargo.toml");
    let is_found = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(" = { version"));
    let line = manifest.lines().find(is_found).unwrap_or_default();
    line.split_once("\"=").and_then(|(_, rest)| rest.split('"').next()).unwrap_or("unknown")
}
