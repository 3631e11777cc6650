//! S2: a buffer that grows in place.

#[cfg(test)]
mod tests;

use super::{Demo, Stage};
use warpheap::device_pools::GrowableBuffer;
use warpheap::error::{Dangling, OutOfMemory};
use warpheap::{Bytes, Error, Result, kernel_names};
use warpheap_device::kernel::DeviceSlice;
use warpheap_harness::kernels::bench::bench_spin;
use warpheap_harness::kernels::demo::{demo_count_others, demo_fill};

pub const DEMO: Demo = Demo {
    name: "S2",
    shows: "a buffer grows from 1 MiB to 100 MiB without moving, and fails to grow without a trace",
    launched: &kernel_names![demo_fill, demo_count_others, bench_spin],
    run: |stage| STEPS.iter().try_for_each(|step| step(stage, &|buffer| Box::new(buffer))),
};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The interface of the buffers in this demonstration.
trait Growable {
    fn address(&self) -> u64;
    fn size(&self) -> u64;
    fn reserved(&self) -> u64;
    fn granularity(&self) -> u64;
    fn grow_to(&mut self, bytes: u64) -> Result<u64>;
    fn shrink_to(&mut self, bytes: u64) -> Result<u64>;
    /// The words from `from` to `to`, in bytes.
    fn words(&self, from: u64, to: u64) -> Result<DeviceSlice<u32>>;
}

impl Growable for GrowableBuffer {
    fn address(&self) -> u64 {
        self.address()
    }

    fn size(&self) -> u64 {
        self.size()
    }

    fn reserved(&self) -> u64 {
        self.reserved()
    }

    fn granularity(&self) -> u64 {
        self.granularity()
    }

    fn grow_to(&mut self, bytes: u64) -> Result<u64> {
        self.grow_to(bytes)
    }

    fn shrink_to(&mut self, bytes: u64) -> Result<u64> {
        self.shrink_to(bytes)
    }

    fn words(&self, from: u64, to: u64) -> Result<DeviceSlice<u32>> {
        self.slice_at(from, (to - from) / 4)
    }
}

type Buffer = Box<dyn Growable>;
/// Wraps each real buffer before use: the identity, except in tests, which inject a fault.
type Wrap<'a> = &'a dyn Fn(GrowableBuffer) -> Buffer;
type Step = fn(&mut Stage<'_>, Wrap<'_>) -> Result<()>;

const STEPS: [Step; 3] = [one, large, never];

fn one(stage: &mut Stage<'_>, wrap: Wrap<'_>) -> Result<()> {
    life(stage, wrap, 100)
}

/// The life of one buffer, of up to `most` MiB.
fn life(stage: &mut Stage<'_>, wrap: Wrap<'_>, most: u64) -> Result<()> {
    let mut buffer = wrap(GrowableBuffer::reserve(stage.device(), GIB)?);
    stage.check_is("bytes of addresses that are reserved", buffer.reserved(), GIB);
    stage.check_is("bytes with memory at first", buffer.size(), 0);
    grow(stage, &mut *buffer, most)?;
    beyond(stage, &mut *buffer)?;
    shrink(stage, &mut *buffer)?;
    end(stage, buffer)
}

/// The bytes of the first growth, rounded up as the device does it.
fn first(buffer: &dyn Growable) -> u64 {
    MIB.next_multiple_of(buffer.granularity())
}

/// Number of words in the byte range `from` to `to` that differ from `value`.
fn others(stage: &mut Stage<'_>, buffer: &dyn Growable, from: u64, to: u64, value: u32) -> Result<u64> {
    let (stream, words) = (stage.stream().clone(), buffer.words(from, to)?);
    // SAFETY: inside the buffer, which only this stream uses.
    unsafe { stage.others(&stream, words, value) }
}

fn fill(stage: &Stage<'_>, buffer: &dyn Growable, from: u64, value: u32) -> Result<()> {
    let words = buffer.words(from, buffer.size())?;
    // SAFETY: inside the buffer, which only this stream uses.
    unsafe { stage.fill(stage.stream(), words, value) }
}

fn grow(stage: &mut Stage<'_>, buffer: &mut dyn Growable, most: u64) -> Result<()> {
    let (base, first, all) = (buffer.address(), first(buffer), most * MIB);
    let size = buffer.grow_to(MIB)?;
    stage.check_is("bytes after growing to 1 MiB, as the device rounds them up", size, first);
    fill(stage, buffer, 0, 1)?;
    let size = buffer.grow_to(all)?;
    stage.check_is(
        format!("bytes after growing to {most} MiB"),
        size,
        all.next_multiple_of(buffer.granularity()),
    );
    stage.check("the address is the same", format!("{base:#x}"), buffer.address() == base);
    fill(stage, buffer, first, 2)?;
    let old = others(stage, buffer, 0, first, 1)?;
    stage.check_is(format!("wrong ones of the {} old values, 1", first / 4), old, 0);
    let new = others(stage, buffer, first, all, 2)?;
    stage.check_is(format!("wrong ones of the {} new values, 2", (all - first) / 4), new, 0);
    // No word is 0, so the result is the number of words examined.
    let checked = others(stage, buffer, 0, all, 0)?;
    stage.check_is("values that were checked", checked, all / 4);
    Ok(())
}

fn beyond(stage: &mut Stage<'_>, buffer: &mut dyn Growable) -> Result<()> {
    let before = (buffer.address(), buffer.size());
    let beyond = buffer.grow_to(buffer.reserved() + 1);
    stage.check_refused("growing past the reservation", beyond, |error| {
        matches!(error, Error::OutOfMemory(OutOfMemory::Reservation { .. }))
    });
    let (address, size) = before;
    let found = format!("{address:#x} and {size}");
    stage.check("address and bytes are as before", found, (buffer.address(), buffer.size()) == before);
    let wrong = others(stage, buffer, 0, buffer.granularity(), 1)?;
    stage.check_is("and so are the values: wrong ones", wrong, 0);
    Ok(())
}

/// More than the available memory.
fn large(stage: &mut Stage<'_>, wrap: Wrap<'_>) -> Result<()> {
    // Reserving addresses is free; the device has less memory than that.
    let more = stage.device().info()?.memory_total + GIB;
    let mut large = wrap(GrowableBuffer::reserve(stage.device(), more)?);
    let refused = large.grow_to(more);
    stage.check_refused("growing to more than the device has", refused, |error| {
        matches!(error, Error::OutOfMemory(OutOfMemory::Device { .. }))
    });
    stage.check_is("bytes with memory then", large.size(), 0);
    let size = large.grow_to(MIB)?;
    fill(stage, &*large, 0, 6)?;
    let wrong = others(stage, &*large, 0, first(&*large), 6)?;
    let found = format!("{}, of which {wrong} words are wrong", Bytes(size));
    stage.check("it can still grow", found, size == first(&*large) && wrong == 0);
    Ok(())
}

fn never(stage: &mut Stage<'_>, wrap: Wrap<'_>) -> Result<()> {
    let never = wrap(GrowableBuffer::reserve(stage.device(), MIB)?);
    stage.check_is("bytes of one that never grew", never.size(), 0);
    Ok(())
}

fn shrink(stage: &mut Stage<'_>, buffer: &mut dyn Growable) -> Result<()> {
    let first = first(buffer);
    stage.check_is("bytes after shrinking to the first growth", buffer.shrink_to(first)?, first);
    let wrong = others(stage, buffer, 0, first, 1)?;
    stage.check_is("wrong ones of the values that stayed", wrong, 0);
    stage.check_is("bytes after shrinking to nothing", buffer.shrink_to(0)?, 0);
    Ok(())
}

fn end(stage: &mut Stage<'_>, mut buffer: Buffer) -> Result<()> {
    buffer.grow_to(MIB)?;
    stage.linger(stage.stream())?;
    fill(stage, &*buffer, 0, 3)?;
    let words = buffer.words(0, 4)?;
    drop(buffer);
    let waited = stage.stream().is_done()?;
    stage.check(
        "its end waits for the kernels that use it",
        if waited { "they are done" } else { "they run" },
        waited,
    );
    // SAFETY: the launch is rejected, because the words are no longer live.
    let late = unsafe { stage.fill(stage.stream(), words, 4) };
    stage.check_refused("a launch with its address", late, |error| {
        matches!(error, Error::Dangling(Dangling::Argument { .. }))
    });
    Ok(())
}
