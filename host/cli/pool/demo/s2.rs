//! S2: a buffer that grows where it lies.

use super::{Demo, Stage};
use warpheap::pool::GrowableBuffer;
use warpheap::{Bytes, Error, Result, kernel_names};
use warpheap_kernels::bench::bench_spin;
use warpheap_kernels::demo::{demo_count_others, demo_fill};

pub const DEMO: Demo = Demo {
    name: "S2",
    shows: "a buffer grows from 1 MiB to 100 MiB without moving, and fails to grow without a trace",
    launched: &kernel_names![demo_fill, demo_count_others, bench_spin],
    run,
};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn run(stage: &mut Stage<'_>) -> Result<()> {
    let device = stage.device().clone();
    let mut buffer = GrowableBuffer::reserve(&device, GIB)?;
    stage.check_is("bytes of addresses that are reserved", buffer.reserved(), GIB);
    stage.check_is("bytes with memory at first", buffer.size(), 0);
    grow(stage, &mut buffer)?;
    fail(stage, &mut buffer)?;
    shrink(stage, &mut buffer)?;
    end(stage, buffer)?;
    let never = GrowableBuffer::reserve(&device, MIB)?;
    stage.check_is("bytes of one that never grew", never.size(), 0);
    Ok(())
}

/// How many of the words from `from` to `to`, in bytes, are not `value`.
fn others(stage: &mut Stage<'_>, buffer: &GrowableBuffer, from: u64, to: u64, value: u32) -> Result<u64> {
    let (stream, words) = (stage.stream().clone(), buffer.slice_at(from, (to - from) / 4)?);
    // SAFETY: in the buffer, which this stream alone uses.
    unsafe { stage.others(&stream, words, value) }
}

fn fill(stage: &Stage<'_>, buffer: &GrowableBuffer, from: u64, value: u32) -> Result<()> {
    let words = buffer.slice_at(from, (buffer.size() - from) / 4)?;
    // SAFETY: in the buffer, which this stream alone uses.
    unsafe { stage.fill(stage.stream(), words, value) }
}

fn grow(stage: &mut Stage<'_>, buffer: &mut GrowableBuffer) -> Result<()> {
    let base = buffer.address();
    let first = buffer.grow_to(MIB)?;
    let rounded = MIB.next_multiple_of(buffer.granularity());
    stage.check_is("bytes after growing to 1 MiB, as the device rounds them up", first, rounded);
    fill(stage, buffer, 0, 1)?;
    let size = buffer.grow_to(100 * MIB)?;
    stage.check_is(
        "bytes after growing to 100 MiB",
        size,
        (100 * MIB).next_multiple_of(buffer.granularity()),
    );
    stage.check("the address is the same", format!("{base:#x}"), buffer.address() == base);
    fill(stage, buffer, first, 2)?;
    let old = others(stage, buffer, 0, first, 1)?;
    stage.check_is(format!("wrong ones of the {} old values, 1", first / 4), old, 0);
    let new = others(stage, buffer, first, 100 * MIB, 2)?;
    let all = 100 * MIB / 4;
    stage.check_is(format!("wrong ones of the {} new values, 2", all - first / 4), new, 0);
    stage.check_is("values that were checked", all, 26_214_400);
    Ok(())
}

fn fail(stage: &mut Stage<'_>, buffer: &mut GrowableBuffer) -> Result<()> {
    let before = (buffer.address(), buffer.size());
    let beyond = buffer.grow_to(buffer.reserved() + 1);
    stage.check_refused("growing past the reservation", beyond, |error| {
        matches!(error, Error::GrowBeyond { .. })
    });
    let (address, size) = before;
    let found = format!("{address:#x} and {size}");
    stage.check("address and bytes are as before", found, (buffer.address(), buffer.size()) == before);
    let wrong = others(stage, buffer, 0, buffer.granularity(), 1)?;
    stage.check_is("and so are the values: wrong ones", wrong, 0);

    // Addresses cost nothing; of memory there is not as much.
    let more = stage.device().info()?.memory_total + GIB;
    let mut large = GrowableBuffer::reserve(stage.device(), more)?;
    let refused = large.grow_to(more);
    stage.check_refused("growing to more than the device has", refused, |error| {
        matches!(error, Error::OutOfMemory { .. })
    });
    stage.check_is("bytes with memory then", large.size(), 0);
    let size = large.grow_to(MIB)?;
    stage.check("it can still grow", Bytes(size).to_string(), size >= MIB);
    Ok(())
}

fn shrink(stage: &mut Stage<'_>, buffer: &mut GrowableBuffer) -> Result<()> {
    let first = MIB.next_multiple_of(buffer.granularity());
    stage.check_is("bytes after shrinking to the first growth", buffer.shrink_to(first)?, first);
    let wrong = others(stage, buffer, 0, first, 1)?;
    stage.check_is("wrong ones of the values that stayed", wrong, 0);
    stage.check_is("bytes after shrinking to nothing", buffer.shrink_to(0)?, 0);
    Ok(())
}

fn end(stage: &mut Stage<'_>, mut buffer: GrowableBuffer) -> Result<()> {
    buffer.grow_to(MIB)?;
    stage.linger(stage.stream())?;
    fill(stage, &buffer, 0, 3)?;
    let words = buffer.slice_at::<u32>(0, 1)?;
    drop(buffer);
    let waited = stage.stream().is_done()?;
    stage.check(
        "its end waits for the kernels that use it",
        if waited { "they are done" } else { "they run" },
        waited,
    );
    // SAFETY: it is not launched, for the words are gone.
    let late = unsafe { stage.fill(stage.stream(), words, 4) };
    stage.check_refused("a launch with its address", late, |error| {
        matches!(error, Error::DanglingArgument { .. })
    });
    Ok(())
}
