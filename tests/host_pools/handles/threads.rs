//! Handles that move between threads and are dropped on any of them.

use crate::cases::Case;
use crate::kernels::double;
use crate::suite::each;
use crate::support::{is_cpu, module};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::sync::Mutex;
use std::thread;
use warpheap::error::OutOfMemory;
use warpheap::host_pools::{DeviceAllocator, PoolBuffer};
use warpheap::{Device, Error, LaunchConfig, Module, Stream};

const THREADS: u64 = 8;
const OPERATIONS: usize = 1500;
const OPERATIONS_OF_DRIVER: usize = 200;
/// Values of each buffer. All values of a buffer are equal.
const LEN: usize = 64;

type Values<'a> = PoolBuffer<u32, &'a dyn DeviceAllocator>;

struct Worker<'s, 'a> {
    case: &'s Case,
    allocator: &'a dyn DeviceAllocator,
    module: &'s Module,
    /// Buffers that any thread may take, with the expected value of each.
    shared: &'s Mutex<Vec<(Values<'a>, u32)>>,
    stream: Stream,
    rng: Pcg64Mcg,
}

impl<'a> Worker<'_, 'a> {
    fn below(&mut self, n: u64) -> u64 {
        self.rng.next_u64() % n
    }

    /// A shared buffer, or a new one.
    fn take(&mut self) -> Option<(Values<'a>, u32)> {
        let mut shared = self.shared.lock().unwrap();
        // All threads together hold no more than the capacity of the smallest pool.
        const MOST: usize = 30;
        if shared.len() > 8 && self.rng.next_u64().is_multiple_of(2) || shared.len() >= MOST {
            let at = self.rng.next_u64() as usize % shared.len();
            return Some(shared.swap_remove(at));
        }
        drop(shared);
        let value = self.rng.next_u64() as u32;
        match PoolBuffer::from_slice(self.allocator, &[value; LEN], &self.stream) {
            Ok(values) => Some((values, value)),
            Err(Error::OutOfMemory(OutOfMemory::Pool { .. })) => None,
            Err(error) => panic!("{}: {error}", self.case),
        }
    }

    fn double(&self, values: &Values<'_>) {
        let grid = LaunchConfig::linear(LEN as u32, LEN as u32);
        // SAFETY: there is a value for each thread. Only this host thread has the buffer, and the
        // stream is the handle's own or recorded.
        unsafe { self.stream.launch(self.module, double, &grid, (values.slice(),)) }.unwrap();
    }

    fn work(mut self, operations: usize) {
        for _ in 0..operations {
            let Some((mut values, mut value)) = self.take() else { continue };
            match self.below(6) {
                0 => {
                    values.move_to(&self.stream).unwrap();
                    self.double(&values);
                    value = value.wrapping_mul(2);
                }
                1 => {
                    // Copies through the handle are ordered after all streams recorded before.
                    values.write(0, &[value]).unwrap();
                    self.stream.wait(&values.stream().record().unwrap()).unwrap();
                    values.record_stream(&self.stream).unwrap();
                    self.double(&values);
                    value = value.wrapping_mul(2);
                }
                2 => assert_eq!(values.copy_to_vec().unwrap(), [value; LEN], "{}", self.case),
                3 => {
                    values.deallocate_on(&self.stream).unwrap();
                    continue;
                }
                4 => continue,
                _ => {}
            }
            self.shared.lock().unwrap().push((values, value));
        }
    }
}

fn run(case: &Case, device: &Device, allocator: &dyn DeviceAllocator) {
    let (module, shared) = (module(device), Mutex::default());
    let few = case.is_the_driver() || !is_cpu(device);
    thread::scope(|scope| {
        for seed in 0..THREADS {
            let (stream, rng) = (device.stream().unwrap(), Pcg64Mcg::seed_from_u64(seed));
            let worker = Worker { case, allocator, module: &module, shared: &shared, stream, rng };
            scope.spawn(move || worker.work(if few { OPERATIONS_OF_DRIVER } else { OPERATIONS }));
        }
    });
    for (values, value) in shared.into_inner().unwrap() {
        assert_eq!(values.copy_to_vec().unwrap(), [value; LEN], "{case}");
    }
}

#[test]
fn handles_go_from_thread_to_thread_and_keep_their_values() {
    each(|case, device, allocator| {
        run(case, device, &allocator);
        assert_eq!(allocator.usage().used_bytes, 0, "{case}");
    });
}

#[test]
fn threads_share_a_handle_and_each_records_its_stream() {
    each(|case, device, allocator| {
        let module = module(device);
        let stream = device.stream().unwrap();
        let values = PoolBuffer::from_slice(&allocator, &[1_u32; 8], &stream).unwrap();
        thread::scope(|scope| {
            for i in 0..8_u64 {
                let (values, module) = (&values, &module);
                scope.spawn(move || {
                    let stream = device.stream().unwrap();
                    values.record_stream(&stream).unwrap();
                    let bytes = (values.address() + 4 * i, 4);
                    // SAFETY: a value of the buffer, which is live.
                    let memory = unsafe { warpheap::DeviceMemory::from_raw(device, bytes.0, bytes.1) };
                    let one = (memory.slice_at::<u32>(0, 1).unwrap(),);
                    // SAFETY: each thread has its own value.
                    unsafe { stream.launch(module, double, &LaunchConfig::linear(1, 1), one) }.unwrap();
                });
            }
        });
        assert_eq!(values.copy_to_vec().unwrap(), [2; 8], "{case} on {device}");
    });
}

#[test]
fn a_shared_pool_ends_on_the_thread_that_has_its_last_handle() {
    use crate::cases::layout;
    use std::sync::Arc;
    use warpheap::host_pools::{BlockPool, SyncDriverAllocator};
    let device = Device::cpu();
    let stream = device.stream().unwrap();
    let pool = Arc::new(
        BlockPool::builder(layout(64, 64), 9).build_over(SyncDriverAllocator::new(&device)).unwrap(),
    );
    let threads: Vec<_> = (0..8_u32)
        .map(|i| {
            let values = PoolBuffer::from_slice(pool.clone(), &[i; 16], &stream).unwrap();
            thread::spawn(move || values.copy_to_vec().unwrap() == [i; 16])
        })
        .collect();
    drop((pool, stream));
    assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
    assert_eq!(device.memory_in_use(), (0, 0));
}
