//! `growable`: a buffer that grows in place.

use super::fault::Fault;
use super::stage::{Demo, Stage};
use warpheap::GrowableBuffer;
use warpheap::error::{Dangling, OutOfMemory};
use warpheap::{Error, Result};
use warpheap_device::kernel::DeviceSlice;

pub const DEMO: Demo = Demo {
    name: "growable",
    shows: "a buffer grows from 1 MiB to 100 MiB in place, and a failed growth changes nothing",
    steps: &[in_place, beyond_the_device, never_grown],
};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Grows a buffer.
fn grow(stage: &Stage, buffer: &mut GrowableBuffer, bytes: u64) -> Result<u64> {
    if stage.has(Fault::Elsewhere) && buffer.size() > 0 && bytes <= buffer.reserved() {
        let mut moved = GrowableBuffer::reserve(&stage.device, buffer.reserved())?;
        let size = moved.grow_to(bytes)?;
        *buffer = moved;
        return Ok(size);
    }
    match buffer.grow_to(bytes) {
        Err(error) if stage.has(Fault::FailureConsumes) => {
            buffer.grow_to(buffer.size() + 1)?;
            buffer.fill_part(0, 4, 0xff)?;
            Err(error)
        }
        grown => grown,
    }
}

fn shrink(stage: &Stage, buffer: &mut GrowableBuffer, bytes: u64) -> Result<u64> {
    if stage.has(Fault::NeverTrims) { Ok(buffer.size()) } else { buffer.shrink_to(bytes) }
}

/// The words from byte `from` to byte `to`.
fn words(stage: &Stage, buffer: &GrowableBuffer, from: u64, to: u64) -> Result<DeviceSlice<u32>> {
    buffer.slice_at(from, (to - from) / 4 - u64::from(stage.has(Fault::Short)))
}

fn in_place(stage: &mut Stage) -> Result<()> {
    // Injected faults are found in less.
    let max = MIB * if stage.fault.is_none() { 100 } else { 4 };
    let (mut buffer, stream) = (GrowableBuffer::reserve(&stage.device, GIB)?, stage.stream.clone());
    let (base, first) = (buffer.address(), MIB.next_multiple_of(buffer.granularity()));
    stage.check_reported("bytes of reserved addresses", buffer.reserved(), GIB);
    stage.check_reported("bytes of memory at first", buffer.size(), 0);
    let size = grow(stage, &mut buffer, MIB)?;
    stage.check_reported("bytes after growth to 1 MiB, as the device rounds them up", size, first);
    stage.fill(&stream, words(stage, &buffer, 0, first)?, 1)?;
    let size = grow(stage, &mut buffer, max)?;
    stage.check_reported("bytes after growth to 100 MiB", size, max.next_multiple_of(buffer.granularity()));
    stage.check("the address is the same", format_args!("{base:#x}"), buffer.address() == base);
    stage.fill(&stream, words(stage, &buffer, first, size)?, 2)?;
    stage.check_words("the old values are 1", &stream, words(stage, &buffer, 0, first)?, 1)?;
    stage.check_words("the new values are 2", &stream, words(stage, &buffer, first, max)?, 2)?;
    // No word is 0, so the result is the number of words compared.
    let checked = stage.different(&stream, words(stage, &buffer, 0, max)?, 0)?;
    stage.check_is("values that were checked", checked, max / 4);
    failed_growth(stage, &mut buffer)?;
    stage.check_is("bytes after shrinking to the first growth", shrink(stage, &mut buffer, first)?, first);
    stage.check_words("the values that stayed are 1", &stream, words(stage, &buffer, 0, first)?, 1)?;
    stage.check_is("bytes after shrinking to nothing", shrink(stage, &mut buffer, 0)?, 0);
    end(stage, buffer)
}

fn failed_growth(stage: &mut Stage, buffer: &mut GrowableBuffer) -> Result<()> {
    let before = (buffer.address(), buffer.size());
    let outcome = grow(stage, buffer, GIB + 1);
    let is_expected = |error: &Error| matches!(error, Error::OutOfMemory(OutOfMemory::Reservation { .. }));
    stage.check_fails("growth past the reservation", outcome, is_expected);
    stage.check_is("address and bytes are as before", (buffer.address(), buffer.size()), before);
    let values = words(stage, buffer, 0, MIB)?;
    stage.check_words("and so are the values", &stage.stream.clone(), values, 1)
}

/// Drops a buffer while a kernel uses it.
fn end(stage: &mut Stage, mut buffer: GrowableBuffer) -> Result<()> {
    let stream = stage.stream.clone();
    buffer.grow_to(MIB)?;
    stage.linger(&stream)?;
    let all = words(stage, &buffer, 0, MIB)?;
    stage.fill(&stream, all, 3)?;
    match stage.fault {
        // Leaked, because a kernel still writes to it.
        Some(Fault::Unordered) => std::mem::forget(buffer),
        _ => drop(buffer),
    }
    let is_done = stream.is_done()?;
    stage.check("a drop waits for kernels", if is_done { "they have ended" } else { "they run" }, is_done);
    let late = stage.fill(&stream, all, 4);
    stage.check_fails("a launch with its address", late, |error| {
        matches!(error, Error::Dangling(Dangling::Argument { .. }))
    });
    Ok(())
}

/// More than the available memory.
fn beyond_the_device(stage: &mut Stage) -> Result<()> {
    // Reserving addresses is free; the device has less memory than that.
    let bytes = stage.device.info()?.memory_total + GIB;
    let (mut large, stream) = (GrowableBuffer::reserve(&stage.device, bytes)?, stage.stream.clone());
    let outcome = grow(stage, &mut large, bytes);
    let is_expected = |error: &Error| matches!(error, Error::OutOfMemory(OutOfMemory::Device { .. }));
    stage.check_fails("growth beyond the memory of the device", outcome, is_expected);
    stage.check_is("bytes of memory then", large.size(), 0);
    grow(stage, &mut large, MIB)?;
    let all = words(stage, &large, 0, MIB)?;
    stage.fill(&stream, all, 6)?;
    stage.check_words("it can still grow, and be written", &stream, all, 6)
}

fn never_grown(stage: &mut Stage) -> Result<()> {
    let never = GrowableBuffer::reserve(&stage.device, MIB)?;
    stage.check_reported("bytes of one that never grew", never.size(), 0);
    Ok(())
}
