//! WebAssembly.

use crate::{Random, Sum};
use wasmi::{Engine, Linker, Module, Store};

/// `(func (export "gcd") (param i64 i64) (result i64) ...)`, by Euclid's algorithm, in binary.
const WASM: [u8; 68] = [
    0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, // the magic number and the version
    1, 7, 1, 0x60, 2, 0x7e, 0x7e, 1, 0x7e, // types
    3, 2, 1, 0, // functions
    7, 7, 1, 3, b'g', b'c', b'd', 0, 0, // exports
    10, 36, 1, 34, 1, 1, 0x7e, // code: one local
    0x02, 0x40, 0x03, 0x40, // block, loop
    0x20, 1, 0x50, 0x0d, 1, // leave the block if the second number is zero
    0x20, 0, 0x20, 1, 0x82, 0x21, 2, // the remainder
    0x20, 1, 0x21, 0, 0x20, 2, 0x21, 1, 0x0c, 0, // shift, and loop again
    0x0b, 0x0b, 0x20, 0, 0x0b, // the result
];

/// Instantiates a module and calls its function.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let engine = Engine::default();
    let Ok(module) = Module::new(&engine, WASM) else { return 1 };
    let mut store = Store::new(&engine, ());
    let Ok(instance) = Linker::new(&engine).instantiate_and_start(&mut store, &module) else { return 2 };
    let Ok(gcd) = instance.get_typed_func::<(i64, i64), i64>(&store, "gcd") else { return 3 };
    for _ in 0..6 {
        let args = (random.below(100_000) as i64, random.below(1000) as i64);
        sum.add(gcd.call(&mut store, args).map_or(4, |result| result as u64));
    }
    sum.finish()
}
