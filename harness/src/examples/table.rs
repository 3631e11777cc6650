//! A hash table that all threads insert into.

use super::context::{Context, Example, Outcome, scrambled};
use crate::Result;
use crate::kernels::examples::table::{Table, example_table_clear, example_table_count, example_table_get};
use std::collections::HashMap;
use warpheap::kernel_names;

const NAME: &str = "table";

pub(super) const EXAMPLE: Example = Example {
    name: NAME,
    does: "All threads count keys in one hash table, whose chains grow by nodes from the heap. \
           A second kernel looks up every key, and a third frees the nodes.",
    launched: &kernel_names![example_table_count, example_table_get, example_table_clear],
    run,
};

fn run(context: &Context<'_>) -> Result<Outcome> {
    let count = context.threads as usize;
    // A few frequent keys and many rare ones; chains of about four.
    let key = |i: u64| scrambled(i) % (1 + scrambled(!i) % (count as u64));
    let keys: Vec<u64> = (0..count as u64).map(key).collect();
    let queries: Vec<u64> = keys.iter().copied().chain((0..count as u64).map(|i| count as u64 + i)).collect();

    let device = context.device;
    let (on_device, requested) = (device.from_slice(&keys)?, device.from_slice(&queries)?);
    let buckets = device.zeroed::<u64>((count / 8).max(1))?;
    let counts = device.zeroed::<u64>(queries.len())?;
    let table = Table { buckets: buckets.slice() };
    let args = (context.heap.handle(), table, on_device.slice(), context.failures.ptr());
    // SAFETY: heap and buffers live until the kernel has ended, and nothing else accesses them.
    unsafe { context.run(example_table_count, count, args) }?;
    // SAFETY: heap and buffers live until the kernel has ended, and nothing else accesses them.
    unsafe { context.run(example_table_get, queries.len(), (table, requested.slice(), counts.slice())) }?;
    // SAFETY: heap and buffers live until the kernel has ended, and nothing else accesses them.
    unsafe { context.run(example_table_clear, buckets.len(), (context.heap.handle(), table)) }?;

    let mut expected = HashMap::<u64, u64>::new();
    keys.iter().for_each(|key| *expected.entry(*key).or_default() += 1);
    let expected_counts: Vec<u64> =
        queries.iter().map(|key| expected.get(key).copied().unwrap_or(0)).collect();
    let found = counts.copy_to_vec()?;
    let checked =
        vec![context.compare(NAME, "counts, half of them of missing keys,", &found, &expected_counts)?];
    Ok((
        checked,
        format!("{count} insertions of {} keys; key {} came {} times", expected.len(), keys[0], found[0]),
    ))
}
