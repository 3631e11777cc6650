//! Programs for eBPF.

use crate::{Random, Sum};
use rbpf::EbpfVmRaw;
use rbpf::assembler::assemble;

/// Euclid's algorithm for two numbers in memory.
const PROGRAM: &str = "
    ldxdw r2, [r1]
    ldxdw r3, [r1+8]
    jeq r3, 0, +4
    mov r4, r2
    mod r4, r3
    mov r2, r3
    mov r3, r4
    jne r3, 0, -5
    mov r0, r2
    exit";

/// Assembles a program, interprets it, and asks for memory that it may not read.
pub fn checksum(seed: u64) -> u64 {
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let Ok(program) = assemble(PROGRAM) else { return 1 };
    sum.bytes(&program);
    let Ok(machine) = EbpfVmRaw::new(Some(&program)) else { return 2 };
    for _ in 0..6 {
        let numbers = [random.below(100_000), random.below(1000)];
        let mut memory: alloc::vec::Vec<u8> =
            numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        sum.add(machine.execute_program(&mut memory).unwrap_or(3));
        sum.add(machine.execute_program(&mut memory[..8]).is_ok().into());
    }
    sum.finish()
}
