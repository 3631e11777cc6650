//! A program with random calls: blocks that change streams, streams that end, and kernels that run
//! late.

use super::super::ledger::Ledger;
use super::kernels::{STRIDE, check, write};
use super::subjects::{Shared, Subject};
use crate::driver::fault_injection::{Call, Faults, LateStreams, Moment, is_injected, late_device};
use crate::driver::{Device, DeviceBuffer, Event, LaunchConfig, Module, Stream};
use crate::error::{Error, Result};
use crate::host_pools::{DeviceAllocator, PoolBuffer, PoolParts, address_of};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::alloc::Layout;
use std::sync::Arc;
use warpheap_device::kernel::{DevicePtr, DeviceSlice};

/// Device memory in bytes.
const MEMORY: u64 = 64 << 20;
const ONE: LaunchConfig = LaunchConfig::linear(1, 1);
/// Calls that may fail, for a pool that can handle that by waiting.
const FAILING: [Call; 5] =
    [Call::Record, Call::Wait, Call::StreamQuery, Call::EventQuery, Call::EventSynchronize];

/// A live block and the work that uses it.
struct Owner {
    pool: Shared,
    ptr: DevicePtr<u8>,
    layout: Layout,
    /// The value of its words.
    mark: u64,
    order: Order,
    /// The work that uses the block.
    uses: Vec<Moment>,
}

/// How the free is ordered after the work that uses the block.
enum Order {
    /// The stream of the free waits for these events. No handle keeps the streams.
    Events(Vec<Event>),
    /// A handle makes its stream wait for the others.
    Handle { stream: Stream, recorded: Vec<Stream> },
}

pub(super) struct Program<'a> {
    subject: &'a Subject,
    faults: Arc<Faults>,
    late: Arc<LateStreams>,
    module: Module,
    rng: Pcg64Mcg,
    streams: Vec<Stream>,
    /// The pool under test, and the one below it. Blocks are allocated from both: memory that the
    /// first returns is used by other code.
    pub pools: Vec<Shared>,
    ledger: Ledger,
    owners: Vec<Owner>,
    /// Number of words that a kernel found changed.
    changed: DeviceBuffer<u64>,
    marks: u64,
    /// Whether driver calls of the pools fail at times.
    fails: bool,
    /// What the ledger found.
    pub lost: Vec<String>,
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
        let kind = [FAILING[self.below(FAILING.len())]];
        self.faults.fail_calls(&kind, true);
        let done = call();
        self.faults.fail_calls(&kind, false);
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
        let Owner { ptr, layout, mark, uses, .. } = owner;
        let arguments = (words(*ptr, *layout), *mark, self.changed.slice());
        // SAFETY: as in `launch_write`.
        unsafe { stream.launch(&self.module, check, &ONE, arguments) }.unwrap();
        uses.push(self.faults.work(stream));
    }

    /// Another stream reads a block.
    fn read(&mut self) {
        if self.owners.is_empty() {
            return;
        }
        let (number, stream) = (self.below(self.owners.len()), self.any_stream());
        let mut owner = self.owners.swap_remove(number);
        match &owner.order {
            Order::Events(events) => stream.wait(&events[0]).unwrap(),
            Order::Handle { stream: first, .. } => stream.wait(&first.record().unwrap()).unwrap(),
        }
        self.check(&mut owner, &stream);
        match &mut owner.order {
            Order::Events(events) => events.push(stream.record().unwrap()),
            Order::Handle { recorded, .. } => recorded.push(stream),
        }
        self.owners.push(owner);
    }

    /// Frees a block on any stream, after work of this stream.
    fn free(&mut self) {
        if self.owners.is_empty() {
            return;
        }
        let (number, stream) = (self.below(self.owners.len()), self.any_stream());
        let mut owner = self.owners.swap_remove(number);
        let Order::Events(events) = &owner.order else { return self.free_handle(owner, &stream) };
        events.iter().for_each(|event| stream.wait(event).unwrap());
        self.check(&mut owner, &stream);
        let Owner { pool, ptr, layout, .. } = &owner;
        // SAFETY: a live block (P2); the stream is ordered after the work that uses it (P1).
        let free = || unsafe { pool.deallocate(*ptr, *layout, &stream) };
        self.call(free).or_else(|_| free()).unwrap();
        self.ledger.freed(address_of(owner.ptr), &owner.uses);
    }

    fn free_handle(&mut self, mut owner: Owner, stream: &Stream) {
        if let Order::Handle { stream: first, .. } = &owner.order {
            let first = first.clone();
            self.check(&mut owner, &first);
        }
        let Owner { pool, ptr, layout, order, uses, .. } = owner;
        let Order::Handle { stream: first, recorded } = order else { unreachable!("the caller checked") };
        let (start, ptr, len) = (address_of(ptr), DevicePtr(ptr.0.cast::<u8>()), layout.size());
        let parts = PoolParts { ptr, len, layout, stream: first, recorded: Vec::new(), allocator: pool };
        // SAFETY: a live block of the allocator, and `record_stream` names all other streams with
        // work that uses it.
        let mut buffer = unsafe { PoolBuffer::from_raw(parts) };
        recorded.iter().for_each(|other| buffer.record_stream(other).unwrap());
        match self.below(3) {
            0 => buffer.move_to(stream).unwrap(),
            1 => return self.deallocate_on(buffer, stream, (start, &uses)),
            _ => {}
        }
        drop(buffer);
        self.ledger.freed(start, &uses);
    }

    fn deallocate_on(
        &mut self,
        buffer: PoolBuffer<u8, Shared>,
        stream: &Stream,
        (start, uses): (u64, &[Moment]),
    ) {
        buffer.deallocate_on(stream).unwrap();
        self.ledger.freed(start, uses);
    }

    fn free_all(&mut self) {
        while !self.owners.is_empty() {
            self.free();
        }
    }

    /// Drops a stream, which may have work left, and creates another one.
    fn replace_stream(&mut self) {
        let (number, stream) = (self.below(self.streams.len()), self.device.stream().unwrap());
        let old = std::mem::replace(&mut self.streams[number], stream);
        self.call(|| Ok(drop(old))).unwrap();
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
        if self.below(2) == 0 {
            self.free_all();
        }
        let (lost, kept) = self.owners.drain(..).partition(|owner| Arc::ptr_eq(&owner.pool, &pool));
        self.owners = kept;
        // The drop waits for the work that uses these blocks.
        let lost: Vec<Owner> = lost;
        lost.iter().for_each(|owner| self.ledger.freed(address_of(owner.ptr), &owner.uses));
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

/// Launches a kernel that writes `mark` to a block that was allocated for work on the stream.
pub(in super::super) fn launch_write(
    module: &Module,
    stream: &Stream,
    (ptr, layout): (DevicePtr<u8>, Layout),
    mark: u64,
) {
    // SAFETY: P1, P3: the block is live, and its pool promises that the stream is ordered after all
    // other work on it. The tests check this promise; all kernels run in one thread. P2: the native
    // module. P4 to P6: the kernel uses no pool, destructor or thread-local variable.
    unsafe { stream.launch(module, write, &ONE, (words(ptr, layout), mark)) }.unwrap();
}

/// The words of a block.
fn words(ptr: DevicePtr<u8>, layout: Layout) -> DeviceSlice<u64> {
    assert!(layout.size() as u64 >= STRIDE, "a block has a word to check");
    // SAFETY: the words lie in the block, which is aligned to 256.
    unsafe { DeviceSlice::from_raw_parts(ptr.0.cast(), layout.size() as u64 / 8) }
}
