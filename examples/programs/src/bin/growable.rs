//! A buffer that grows in place: from 1 MiB to 100 MiB at the same address, without a copy.
//!
//! `cargo run --release -p warpheap-examples --bin growable` prints on the CPU:
//!
//! ```text
//! device: CPU …
//! 1 MiB requested: the buffer has 2097152 B (2.0 MiB)
//! 100 MiB requested: the buffer has 104857600 B (100.0 MiB), at the same address
//! - 26214400 integers, the old ones and the new ones are as the host computes them
//! 2 GiB requested: cannot grow a buffer to 2147483648 B (2.0 GiB): …
//! shrunk to 1 MiB: the buffer has 2097152 B (2.0 MiB)
//! - 262144 integers that are left are as the host computes them
//! ```

use warpheap::{Bytes, Device, GrowableBuffer, kernel_names};
use warpheap_examples::kernels::fill::fill_integers;
use warpheap_examples::{Result, check_same, device, load, run_kernel};

const MIB: u64 = 1 << 20;
/// Threads of a kernel. Each fills several integers.
const THREADS: usize = 1 << 12;

fn main() -> Result {
    run(&device()?)
}

/// Grows and shrinks a buffer that has 1 GiB of addresses, and checks its contents.
pub fn run(device: &Device) -> Result {
    let (module, stream) = (load(device, &kernel_names![fill_integers])?, device.stream()?);
    let mut buffer = GrowableBuffer::reserve(device, 1 << 30)?;
    let address = buffer.address();
    let fill = |buffer: &GrowableBuffer, from: u64, value: u32| {
        let integers = buffer.slice_at(from, (buffer.size() - from) / 4)?;
        // SAFETY: the buffer outlives the kernel, and nothing else accesses it.
        unsafe { run_kernel(&module, &stream, fill_integers, THREADS, (integers, value)) }
    };

    let first = buffer.grow_to(MIB)?;
    println!("1 MiB requested: the buffer has {}", Bytes(first));
    fill(&buffer, 0, 1)?;
    let size = buffer.grow_to(100 * MIB)?;
    if buffer.address() != address {
        return Err("the buffer has moved".into());
    }
    println!("100 MiB requested: the buffer has {}, at the same address", Bytes(size));
    fill(&buffer, first, 2)?;
    let mut found = vec![0; (100 * MIB / 4) as usize];
    buffer.read(0, &mut found)?;
    let mut expected = vec![2; found.len()];
    expected[..(first / 4) as usize].fill(1);
    check_same("integers, the old ones and the new ones", &found, &expected)?;

    let Err(error) = buffer.grow_to(2 << 30) else { return Err("more than was reserved".into()) };
    println!("2 GiB requested: {error}");
    println!("shrunk to 1 MiB: the buffer has {}", Bytes(buffer.shrink_to(MIB)?));
    found.truncate((MIB / 4) as usize);
    buffer.read(0, &mut found)?;
    check_same("integers that are left", &found, &vec![1; found.len()])
}
