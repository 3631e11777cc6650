//! Rust's own collections, which grow in each thread of a kernel: `Vec`, `Box`, `BTreeMap`,
//! `String` and `Rc`. They allocate from the heap of the module, on the CPU because the program has
//! a `KernelAllocator`.
//!
//! `cargo run --release -p warpheap-examples --bin vectors` prints on the CPU:
//!
//! ```text
//! device: CPU …
//! - the heap is empty again; no allocation failed
//! - 4096 factorisations are as the host computes them
//! - 4096 sums over all versions are as the host computes them
//! 720720 = 2^4*3^2*5*7*11*13
//! ```

use warpheap::simt::KernelAllocator;
use warpheap::{Device, kernel_names};
use warpheap_examples::kernels::vectors::{TEXT_BYTES, sum_versions, write_factors};
use warpheap_examples::{Result, check_empty, check_same, device, heap, load, run_kernel, threads};

/// Kernels on the CPU allocate from the heap of their module.
#[global_allocator]
static ALLOCATOR: KernelAllocator = KernelAllocator::system();

/// The first number to be factored: 720720 has many small factors.
const FIRST: u64 = 720_720;
/// Maximum number of versions that a thread keeps.
const VERSIONS: u32 = 24;

fn main() -> Result {
    let device = device()?;
    run(&device, threads(&device))
}

/// Each thread factors a number, then keeps every version of a growing list. The versions share
/// parts of the list.
pub fn run(device: &Device, threads: u32) -> Result {
    let module = load(device, &kernel_names![write_factors, sum_versions])?;
    let (stream, heap) = (device.stream()?, heap(device, threads)?);
    // The collections of the kernels allocate from it.
    module.set_global_heap(&heap)?;
    let count = threads as usize;
    let texts = device.zeroed::<[u8; TEXT_BYTES]>(count)?;
    // SAFETY: the buffer outlives the kernel, and nothing else accesses it.
    unsafe { run_kernel(&module, &stream, write_factors, count, (FIRST, texts.slice())) }?;
    let sums = device.zeroed::<u64>(count)?;
    // SAFETY: the buffer outlives the kernel, and nothing else accesses it.
    unsafe { run_kernel(&module, &stream, sum_versions, count, (VERSIONS, sums.slice())) }?;
    module.clear_global_heap()?;

    check_empty(&heap)?;
    let texts: Vec<String> = texts.copy_to_vec()?.iter().map(text_of).collect();
    let products: Vec<String> = (FIRST..).take(count).map(product).collect();
    check_same("factorisations", &texts, &products)?;
    let expected: Vec<u64> = (0..threads).map(sum_of_versions).collect();
    check_same("sums over all versions", &sums.copy_to_vec()?, &expected)?;
    println!("{FIRST} = {}", texts[0]);
    Ok(())
}

fn text_of(bytes: &[u8; TEXT_BYTES]) -> String {
    String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

/// Factors by trial division.
fn product(mut n: u64) -> String {
    let mut parts = Vec::new();
    for factor in 2.. {
        if factor * factor > n {
            break;
        }
        let power = std::iter::from_fn(|| n.is_multiple_of(factor).then(|| n /= factor)).count();
        match power {
            0 => {}
            1 => parts.push(factor.to_string()),
            _ => parts.push(format!("{factor}^{power}")),
        }
    }
    if n > 1 || parts.is_empty() {
        // The rest is a prime factor, larger than all before.
        parts.push(n.to_string());
    }
    parts.join("*")
}

/// The version after `k` numbers holds the first `k` multiples, so multiple `m` is in all but
/// `m + 1` versions.
fn sum_of_versions(i: u32) -> u64 {
    let count = i % VERSIONS;
    (0..count).map(|m| u64::from(i.wrapping_mul(m)) * u64::from(count - m)).sum()
}
