//! A program with random calls: blocks that change streams, streams that end, and kernels that run
//! late.

use super::super::ledger::Ledger;
use super::kernels::{launch_check, launch_write};
use super::owner::{Order, Owner};
use super::subjects::{Shared, Subject};
use crate::driver::fault_injection::{Call, Faults, LateStreams, is_injected, late_device};
use crate::driver::{Device, DeviceBuffer, Module, Stream};
use crate::error::{Error, Result};
use crate::host_pools::{DeviceAllocator, RungStats, address_of};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::alloc::Layout;
use std::sync::Arc;

/// Device memory in bytes.
const MEMORY: u64 = 64 << 20;
/// Calls that may fail, for a pool that can handle that by waiting.
const FAILING: [Call; 5] =
    [Call::Record, Call::Wait, Call::StreamQuery, Call::EventQuery, Call::EventSynchronize];

pub(super) struct Program<'a> {
    subject: &'a Subject,
    faults: Arc<Faults>,
    late: Arc<LateStreams>,
    module: Module,
    rng: Pcg64Mcg,
    streams: Vec<Stream>,
    /// The pool under test, and the one below it. Blocks are allocated from both: memory that the
    /// first returns is used by other code.
    pools: Vec<Shared>,
    ledger: Ledger,
    owners: Vec<Owner>,
    /// Number of words that a kernel found changed.
    changed: DeviceBuffer<u64>,
    marks: u64,
    /// Whether driver calls of the pools fail at times.
    fails: bool,
    /// What the ledger found.
    pub lost: Vec<String>,
    /// Counters of the pools under test that were dropped.
    pub rungs: Vec<RungStats>,
    device: Device,
}

impl Program<'_> {
    pub fn new(subject: &Subject, seed: u64) -> Program<'_> {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let one_in = [0, 0, 64, 8][rng.next_u64() as usize % 4];
        let (device, faults, late) = late_device(MEMORY, seed, one_in);
        let streams = (0..2 + rng.next_u64() % 4).map(|_| device.stream().unwrap()).collect();
        let memory = subject.memory.map(|memory| memory(&device).unwrap());
        let pool = (subject.make)(&device, memory.clone()).unwrap();
        Program {
            subject,
            faults,
            late,
            module: device.native_module().unwrap(),
            fails: rng.next_u64().is_multiple_of(4),
            rng,
            streams,
            pools: [pool].into_iter().chain(memory).collect(),
            ledger: Ledger::default(),
            owners: Vec::new(),
            changed: device.from_slice(&[0]).unwrap(),
            marks: 0,
            lost: Vec::new(),
            rungs: Vec::new(),
            device,
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.rng.next_u64() as usize % bound
    }

    fn any_stream(&mut self) -> Stream {
        let number = self.below(self.streams.len());
        self.streams[number].clone()
    }

    /// One call of the program.
    pub fn step(&mut self) {
        let blocks = self.subject.blocks;
        match self.below(210) {
            0..80 if self.owners.len() < blocks => self.allocate(),
            0..140 => self.free(),
            140..170 => self.read(),
            170..185 => drop(self.late.run_some(1 + self.rng.next_u64() as usize % 4)),
            185..194 => self.replace_stream(),
            194 => self.any_stream().synchronize().unwrap(),
            195 => drop(self.late.run_some(usize::MAX)),
            196..199 => self.tidy(),
            199..203 => (0..blocks).for_each(|_| self.allocate()),
            203..207 => {
                self.free_all();
                (0..2).for_each(|_| self.tidy());
            }
            _ => self.rebuild(),
        }
    }

    /// Calls a pool; in some programs, driver calls of one kind fail meanwhile.
    fn call<T>(&mut self, call: impl FnOnce() -> Result<T>) -> Result<T> {
        if !self.fails || self.below(8) > 0 {
            return call();
        }
        let kind = FAILING[self.below(FAILING.len())];
        self.call_without(kind, call)
    }

    /// Driver calls of that kind fail during `call`.
    fn call_without<T>(&self, kind: Call, call: impl FnOnce() -> T) -> T {
        self.faults.fail_calls(&[kind], true);
        let done = call();
        self.faults.fail_calls(&[kind], false);
        done
    }

    fn allocate(&mut self) {
        let sizes = self.subject.sizes;
        let (size, stream) = (sizes[self.below(sizes.len())], self.any_stream());
        let layout = Layout::from_size_align(size, 256).unwrap();
        // Mostly from the pool under test.
        let number = self.below(4) / 3 * self.below(self.pools.len());
        let pool = self.pools[number].clone();
        let allocated = self.call(|| pool.allocate(layout, &stream));
        let Ok(ptr) = allocated.inspect_err(|error| {
            assert!(matches!(error, Error::OutOfMemory(_)) || is_injected(error), "{error}")
        }) else {
            return;
        };
        let range = (address_of(ptr), size as u64);
        self.lost.extend(self.ledger.allocated(&self.faults, range, &stream).err());
        self.marks += 1;
        let mark = self.marks;
        launch_write(&self.module, &stream, (ptr, layout), mark);
        let uses = vec![self.faults.work(&stream)];
        let order = match self.below(4) {
            0 => Order::Handle { stream, recorded: Vec::new() },
            _ => Order::Events(vec![stream.record().unwrap()]),
        };
        self.owners.push(Owner { pool, ptr, layout, mark, order, uses });
    }

    /// Launches a kernel that checks the block, on a stream that is ordered after its first use.
    fn check(&self, owner: &mut Owner, stream: &Stream) {
        let block = (owner.ptr, owner.layout);
        launch_check(&self.module, stream, block, owner.mark, &self.changed);
        owner.uses.push(self.faults.work(stream));
    }

    /// Any live block, which the caller puts back or frees.
    fn any_owner(&mut self) -> Option<Owner> {
        let number = (!self.owners.is_empty()).then(|| self.below(self.owners.len()))?;
        Some(self.owners.swap_remove(number))
    }

    /// Another stream reads a block.
    fn read(&mut self) {
        let Some(mut owner) = self.any_owner() else { return };
        let stream = self.any_stream();
        owner.follow_first(&stream).unwrap();
        self.check(&mut owner, &stream);
        owner.add_user(stream).unwrap();
        self.owners.push(owner);
    }

    /// Frees a block on any stream.
    fn free(&mut self) {
        let Some(mut owner) = self.any_owner() else { return };
        let stream = self.any_stream();
        let last = owner.follow(&stream).unwrap();
        self.check(&mut owner, &last);
        let ((start, _), uses) = (owner.range(), std::mem::take(&mut owner.uses));
        match &owner.order {
            Order::Events(_) => self.call(|| owner.free(&stream)).or_else(|_| owner.free(&stream)).unwrap(),
            Order::Handle { .. } => owner.free_handle(&stream, self.below(3)),
        }
        self.ledger.freed(start, &uses);
    }

    fn free_all(&mut self) {
        while !self.owners.is_empty() {
            self.free();
        }
    }

    /// Drops a stream, which may have work left, and creates another one. In some programs the
    /// driver cannot record the last point of the stream.
    fn replace_stream(&mut self) {
        let (number, stream) = (self.below(self.streams.len()), self.device.stream().unwrap());
        let old = std::mem::replace(&mut self.streams[number], stream);
        if self.fails && self.below(2) == 0 {
            self.call_without(Call::Record, || drop(old));
        }
    }

    fn tidy(&mut self) {
        let (number, stream) = (self.below(self.pools.len()), self.any_stream());
        let pool = self.pools[number].clone();
        if let Err(error) = self.call(|| pool.tidy(&stream)) {
            assert!(is_injected(&error), "{error}");
        }
        self.pools.iter().for_each(|pool| pool.check());
    }

    /// Drops the pool, at times with live blocks, allocates its memory from the pool below it, and
    /// builds another one.
    fn rebuild(&mut self) {
        let pool = self.pools.remove(0);
        self.rungs.extend(pool.rungs());
        if self.below(2) == 0 {
            self.free_all();
        }
        let (lost, kept) = self.owners.drain(..).partition(|owner| Arc::ptr_eq(&owner.pool, &pool));
        self.owners = kept;
        // The drop waits for the work that uses these blocks.
        let lost: Vec<Owner> = lost;
        lost.iter().for_each(|owner| self.ledger.freed(owner.range().0, &owner.uses));
        drop((lost, pool));
        let memory = self.pools.first().cloned();
        if memory.is_some() {
            (0..2 * self.subject.blocks).for_each(|_| self.allocate());
            self.free_all();
        }
        let make = || (self.subject.make)(&self.device, memory.clone());
        // Pending memory of several streams may be too fragmented.
        let pool = make().or_else(|_| self.device.synchronize().and_then(|()| make()));
        self.pools.insert(0, pool.unwrap());
    }

    /// Runs all work. Returns the number of words that a kernel found changed.
    pub fn end(&mut self) -> u64 {
        self.rebuild();
        self.free_all();
        self.device.synchronize().unwrap();
        self.changed.copy_to_vec().unwrap()[0]
    }
}
