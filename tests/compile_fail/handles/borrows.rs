//! Handles: mistakes in ownership, borrows and `unsafe`, one in each function.

use warpheap::host_pools::{PoolBuffer, SyncDriverAllocator};
use warpheap::{Result, Stream};

/// A handle cannot be freed twice.
fn freed_twice(memory: &SyncDriverAllocator, stream: &Stream) -> Result<()> {
    let values = PoolBuffer::from_slice(memory, &[1_u32], stream)?;
    values.deallocate_on(stream)?;
    drop(values);
    Ok(())
}

/// A deallocated handle cannot be used.
fn use_after_deallocate_on(memory: &SyncDriverAllocator, stream: &Stream) -> Result<()> {
    let values = PoolBuffer::from_slice(memory, &[1_u32], stream)?;
    values.deallocate_on(stream)?;
    values.copy_to_vec()?;
    Ok(())
}

/// A handle cannot outlive the pool that it borrows.
fn outlives_its_pool(stream: &Stream) -> Result<()> {
    let values = {
        let memory = SyncDriverAllocator::new(stream.device());
        PoolBuffer::from_slice(&memory, &[1_u32], stream)?
    };
    drop(values);
    Ok(())
}

/// A handle that borrows its pool cannot be sent to a thread that may outlive the pool.
fn outlives_its_thread(memory: SyncDriverAllocator, stream: &Stream) -> Result<()> {
    let values = PoolBuffer::from_slice(&memory, &[1_u32], stream)?;
    std::thread::spawn(move || drop(values));
    Ok(())
}

/// A pool cannot be moved while a handle borrows it.
fn pool_moved_away(memory: SyncDriverAllocator, stream: &Stream) -> Result<()> {
    let values = PoolBuffer::from_slice(&memory, &[1_u32], stream)?;
    drop(memory);
    drop(values);
    Ok(())
}

/// A write needs exclusive access to the handle.
fn written_while_shared(memory: &SyncDriverAllocator, stream: &Stream) -> Result<()> {
    let mut values = PoolBuffer::from_slice(memory, &[1_u32], stream)?;
    let shared = &values;
    values.copy_from_slice(&[2])?;
    shared.copy_to_vec()?;
    Ok(())
}

/// `assume_init` is unsafe: the caller promises that the values are initialised.
fn assume_init_without_unsafe(memory: &SyncDriverAllocator, stream: &Stream) -> Result<()> {
    let values = PoolBuffer::<u32, _>::new_uninit(memory, 1, stream)?.assume_init();
    drop(values);
    Ok(())
}

/// `from_raw` is unsafe: the caller promises that the parts belong to a handle.
fn raw_without_unsafe(memory: &SyncDriverAllocator, stream: &Stream) -> Result<()> {
    let parts = PoolBuffer::from_slice(memory, &[1_u32], stream)?.into_raw();
    drop(PoolBuffer::from_raw(parts));
    Ok(())
}

fn main() {}
