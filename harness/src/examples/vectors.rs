//! Collections that belong to a single thread each.

use super::context::{Context, Example, Outcome};
use crate::Result;
use crate::kernels::examples::vectors::{TEXT_BYTES, example_factors, example_versions};
use warpheap::driver::Backend;
use warpheap::kernel_names;

const NAME: &str = "vectors";

pub(super) const EXAMPLE: Example = Example {
    name: NAME,
    does: "Each thread factors a number with its own Vec, Box, BTreeMap and String, then keeps \
           every version of a growing list. The versions share parts of the list by Rc.",
    launched: &kernel_names![example_factors, example_versions],
    run,
};

/// The first number to be factored: 720720 has many small factors.
const FIRST: u64 = 720_720;
/// Maximum number of versions that a thread keeps.
const VERSIONS: u32 = 24;

fn run(context: &Context<'_>) -> Result<Outcome> {
    context.module.set_global_heap(&context.heap)?;
    let count = context.threads as usize;
    let texts = context.device.zeroed::<[u8; TEXT_BYTES]>(count)?;
    // SAFETY: the buffer lives until the kernel has ended, and nothing else accesses it.
    unsafe { context.run(example_factors, count, (FIRST, texts.slice())) }?;
    let sums = context.device.zeroed::<u64>(count)?;
    // SAFETY: the buffer lives until the kernel has ended, and nothing else accesses it.
    unsafe { context.run(example_versions, count, (VERSIONS, sums.slice())) }?;
    context.module.clear_global_heap()?;

    let texts: Vec<String> = texts.copy_to_vec()?.iter().map(text_of).collect();
    let products: Vec<String> = (FIRST..).take(count).map(product).collect();
    let expected: Vec<u64> = (0..context.threads).map(sum_of_versions).collect();
    let mut checked = vec![
        context.compare(NAME, "factorisations", &texts, &products)?,
        context.compare(NAME, "sums over all versions", &sums.copy_to_vec()?, &expected)?,
    ];
    if context.device.backend() == Backend::Cpu {
        checked.push("not checked on the CPU: there the collections allocate as this program does".into());
    }
    Ok((checked, format!("{FIRST} = {}", texts[0])))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_factored() {
        for (n, text) in [
            (2, "2"),
            (4, "2^2"),
            (12, "2^2*3"),
            (35, "5*7"),
            (FIRST, "2^4*3^2*5*7*11*13"),
            (49, "7^2"),
            (50, "2*5^2"),
        ] {
            assert_eq!(product(n), text);
        }
    }

    #[test]
    fn versions_are_summed() {
        // [], [0], [0, 3], [0, 3, 6]
        assert_eq!(sum_of_versions(3), 3 + 9);
    }
}
