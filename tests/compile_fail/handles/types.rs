//! Handles: mistakes in types and traits, one in each function.

use std::marker::PhantomData;
use std::rc::Rc;
use std::thread;
use warpheap::host_pools::{PoolBox, PoolBuffer, SyncDriverAllocator};
use warpheap::{Result, Stream};

/// Device memory cannot hold host references.
fn host_references(memory: &SyncDriverAllocator, stream: &Stream) -> Result<()> {
    drop(PoolBuffer::from_slice(memory, &["text"], stream)?);
    Ok(())
}

/// Uninitialised values cannot be read.
fn read_before_init(memory: &SyncDriverAllocator, stream: &Stream) -> Result<()> {
    let values = PoolBuffer::<u32, _>::new_uninit(memory, 1, stream)?;
    values.copy_to_vec()?;
    Ok(())
}

/// Uninitialised values have a different type from initialised values.
fn uninit_as_init(memory: &SyncDriverAllocator, stream: &Stream) -> Result<()> {
    let values: PoolBuffer<u32, _> = PoolBuffer::<u32, _>::new_uninit(memory, 1, stream)?;
    drop(values);
    Ok(())
}

/// Device memory cannot hold values with a destructor, because none would run.
fn values_with_drop(memory: &SyncDriverAllocator, stream: &Stream) -> Result<()> {
    drop(PoolBuffer::<String, _>::new_uninit(memory, 1, stream)?);
    Ok(())
}

/// A value bound to its thread, such as the address of a thread-local variable.
#[derive(Clone, Copy)]
struct NotSend(#[allow(dead_code)] *const u8);

/// A handle is `Send` only if its values are.
fn sent_without_send(values: PoolBuffer<NotSend>) {
    thread::spawn(move || drop(values));
}

#[derive(Clone, Copy)]
struct NotSync(#[allow(dead_code)] PhantomData<Rc<u32>>);

/// A handle is `Sync` only if its values are.
fn shared_without_sync(value: &PoolBox<NotSync>) {
    thread::scope(|scope| {
        scope.spawn(|| value.address());
    });
}

fn main() {}
