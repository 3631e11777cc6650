//! The one error type of the host crate.

mod brief;
mod bytes;

pub use bytes::Bytes;

use crate::simt::SimtError;

/// A result whose error is this crate's.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong: what was asked, what there was, and what to do.
#[derive(thiserror::Error, Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// There is no device to run on. The only error that says so.
    #[error("no usable device: {asked} was asked for, but {found}; {advice}")]
    NoDevice {
        /// Which device was asked for.
        asked: String,
        /// What is there instead.
        found: String,
        /// What to do about it.
        advice: String,
    },

    /// The driver refused a call.
    #[error("{call} failed with {name} ({code}): {detail}")]
    Driver {
        /// The driver's function.
        call: &'static str,
        /// Its status.
        code: u32,
        /// The status' name.
        name: String,
        /// The driver's own explanation.
        detail: String,
    },

    /// The driver lacks a function that this crate calls.
    #[error("the CUDA driver has no {symbol}: it is too old (CUDA 11.0 is the oldest that has); update it")]
    DriverTooOld {
        /// The missing function.
        symbol: &'static str,
    },

    /// A kernel failed on the GPU and took its context with it.
    #[error(
        "a kernel failed on the GPU before {call} returned: {name} ({code}): {detail}; every later call on \
         this device fails too, so end the process; `compute-sanitizer --tool memcheck` names the access"
    )]
    KernelFault {
        /// The call that reported it, often long after the kernel was launched.
        call: &'static str,
        /// The driver's status.
        code: u32,
        /// The status' name.
        name: String,
        /// The driver's own explanation.
        detail: String,
    },

    /// A kernel failed on the CPU.
    #[error("kernel `{kernel}` failed on the CPU: {source}; this stream runs nothing more")]
    Simt {
        /// The kernel's name.
        kernel: &'static str,
        /// How.
        source: SimtError,
    },

    /// The executor of a CPU stream panicked outside of any kernel's lane.
    #[error("the CPU stream panicked: {message}; this is a defect of warpheap, please report it")]
    CpuStream {
        /// The panic's message.
        message: String,
    },

    /// The driver's compiler rejected the PTX.
    #[error("the driver could not compile the PTX: {name} ({code}); {advice}\n{log}")]
    Jit {
        /// The driver's status.
        code: u32,
        /// The status' name.
        name: String,
        /// What to do about it.
        advice: String,
        /// What the compiler said.
        log: String,
    },

    /// The module has no such kernel.
    #[error(
        "the module has no kernel `{kernel}` (it has {known}); where it is loaded by the names of kernels, name this one, too; \
         otherwise the PTX is older than the program, or of other kernels: rebuild it"
    )]
    UnknownKernel {
        /// The kernel that was asked for.
        kernel: &'static str,
        /// The kernels that there are.
        known: String,
    },

    /// Program and PTX disagree about a kernel's parameters.
    #[error(
        "kernel `{kernel}` takes {program} in the program but {ptx} in the PTX; the PTX is older than the \
         program, or one of the two was built with the feature `debug` and the other without: rebuild it"
    )]
    KernelSignature {
        /// The kernel's name.
        kernel: &'static str,
        /// The program's parameters.
        program: String,
        /// The PTX's parameters.
        ptx: String,
    },

    /// The grid cannot be launched.
    #[error("cannot launch `{kernel}`: {asked}, but {limit}; {advice}")]
    LaunchConfig {
        /// The kernel's name.
        kernel: &'static str,
        /// What was asked.
        asked: String,
        /// What the device or the kernel allows.
        limit: String,
        /// What to do about it.
        advice: &'static str,
    },

    /// A measured kernel computed something else than it must, so its time means nothing.
    #[error("{what}: the results are wrong: {found}")]
    WrongResult {
        /// What was measured.
        what: String,
        /// What was found.
        found: String,
    },

    /// A pool cannot be made so.
    #[error("cannot make a pool with {setting} = {given}: {why}")]
    PoolConfig {
        /// The setting.
        setting: &'static str,
        /// What it was given.
        given: String,
        /// What is wrong with that, and what it may be.
        why: String,
    },

    /// An allocator of the host's serves no such layout.
    #[error("{allocator} cannot allocate {asked}: {why}")]
    AllocRequest {
        /// Which allocator.
        allocator: String,
        /// Size and alignment.
        asked: String,
        /// What is wrong with that, and what to do.
        why: String,
    },

    /// An allocator of the host's has not as much left, or not in one piece.
    #[error(
        "{allocator} cannot allocate {requested}: {used} of {reserved} are in use, {cached} are kept for later, and the \
         largest free block has {largest}; {advice}"
    )]
    AllocExhausted {
        /// Which allocator.
        allocator: String,
        /// How much was asked for.
        requested: Bytes,
        /// How much is in use.
        used: Bytes,
        /// How much there is, in use or not; of a limit, how much it allows.
        reserved: Bytes,
        /// How much is free and not given back upstream; of a limit, by what it wraps.
        cached: Bytes,
        /// The most that can be allocated at the moment.
        largest: Bytes,
        /// What to do about it.
        advice: &'static str,
    },

    /// An address was given back that no live block of the allocator starts at, or with another layout.
    #[error(
        "{allocator} cannot take back {address:#x}: {why}; give back what its `allocate` returned, with the same layout, \
         and once"
    )]
    AllocFree {
        /// Which allocator.
        allocator: String,
        /// What was given back.
        address: u64,
        /// What is wrong with it.
        why: String,
    },

    /// A pool was to be reset while some of its blocks were allocated.
    #[error(
        "{allocator} cannot be reset: {blocks} blocks of together {bytes} are still allocated of {reserved}; {advice}"
    )]
    AllocInUse {
        /// Which allocator.
        allocator: String,
        /// How many blocks.
        blocks: u64,
        /// Their bytes.
        bytes: Bytes,
        /// How much there is, in use or not.
        reserved: Bytes,
        /// What to do about it.
        advice: &'static str,
    },

    /// A call failed because it was to.
    #[error("call {call} of an allocator failed: a FailureInjected was told to let it fail")]
    FailureInjected {
        /// Which call, from 1.
        call: u64,
    },

    /// A log of allocations cannot be written or read.
    #[error("the log of allocations cannot be {what}: {why}; {advice}")]
    AllocLog {
        /// What was to be done with it.
        what: &'static str,
        /// What is in the way.
        why: String,
        /// What to do about it.
        advice: &'static str,
    },

    /// The heap serves no such layout.
    #[error("a heap cannot allocate {asked}: {why}")]
    HeapRequest {
        /// Size and alignment.
        asked: String,
        /// What is wrong with that, and what to do.
        why: String,
    },

    /// Addresses were given back that no live block of the heap starts at.
    #[error(
        "{failed} of {asked} addresses were not given back, the others were: {first}; give back what the heap's \
         `alloc` returned, on the host or in a kernel, and once"
    )]
    HeapFree {
        /// How many.
        failed: u64,
        /// Of how many.
        asked: usize,
        /// The first of them, and what is wrong with it.
        first: String,
    },

    /// An argument names memory that is not there.
    #[error(
        "argument {position} of `{kernel}` names {bytes} at {address:#x}, which lies in no live allocation \
         of {device}; {nearest}; keep the buffer alive until the launch, and pass it to its own device"
    )]
    DanglingArgument {
        /// The kernel's name.
        kernel: &'static str,
        /// Which argument, from 0.
        position: usize,
        /// Where the memory starts.
        address: u64,
        /// How long it is.
        bytes: Bytes,
        /// The device of the launch.
        device: String,
        /// What lies nearest.
        nearest: String,
    },

    /// The module has no global allocator to set a heap for.
    #[error(
        "the PTX has no `{symbol}`, so there is no global allocator to set a heap for; write \
         `warpheap_device::global_heap!();` in the kernel crate and rebuild it"
    )]
    NoGlobalHeap {
        /// The variable that is missing.
        symbol: &'static str,
    },

    /// Program and PTX disagree about the global allocator.
    #[error(
        "`{symbol}` has {ptx} in the PTX but {program} in the program; the PTX was built with another version \
         of warpheap-device, or one of the two with its feature `debug`: rebuild it"
    )]
    GlobalHeapLayout {
        /// The variable.
        symbol: &'static str,
        /// Its length in the PTX.
        ptx: Bytes,
        /// Its length in the program.
        program: Bytes,
    },

    /// The heap that a module allocates from is gone.
    #[error(
        "`{kernel}` would allocate from the heap of {bytes} at {address:#x} of {device}, which was dropped after \
         Module::set_global_heap; keep the heap alive until the launch, or set another"
    )]
    GlobalHeapGone {
        /// The kernel's name.
        kernel: &'static str,
        /// Where the heap started.
        address: u64,
        /// How long it was.
        bytes: Bytes,
        /// The device of the launch.
        device: String,
    },

    /// Things of two devices were used together.
    #[error("{what} belongs to {got}, but the call is for {expected}; use things of one device together")]
    WrongDevice {
        /// What does not belong.
        what: &'static str,
        /// The device of the call.
        expected: String,
        /// The device of the thing.
        got: String,
    },

    /// The device has not enough memory.
    #[error("cannot allocate {requested} on {device}: {free} of {total} are free; {advice}")]
    OutOfMemory {
        /// The device's name.
        device: String,
        /// How much was asked for.
        requested: Bytes,
        /// How much is free.
        free: Bytes,
        /// How much there is.
        total: Bytes,
        /// What to do about it.
        advice: String,
    },

    /// There are not as many addresses, or the system does not let them be used.
    #[error("cannot {what} {bytes} of addresses on {device}: {why}; {advice}")]
    AddressSpace {
        /// What was to be done.
        what: &'static str,
        /// With how many of them.
        bytes: Bytes,
        /// The device's name.
        device: String,
        /// What the system says.
        why: String,
        /// What to do about it.
        advice: &'static str,
    },

    /// Something cannot grow as far.
    #[error("cannot grow {what} to {asked}: {reserved} are reserved for it, once and for all; {advice}")]
    GrowBeyond {
        /// What was to grow.
        what: &'static str,
        /// How far.
        asked: Bytes,
        /// How far it can.
        reserved: Bytes,
        /// What to do about it.
        advice: &'static str,
    },

    /// A buffer would be larger than the address space.
    #[error("{len} values of {element} are more bytes than an address can count; ask for fewer")]
    SizeOverflow {
        /// How many values.
        len: usize,
        /// The size of each.
        element: Bytes,
    },

    /// An alignment is not one.
    #[error("an alignment of {align} was asked for; it must be a power of two of at most {most}")]
    Alignment {
        /// What was asked.
        align: usize,
        /// The largest that is served.
        most: usize,
    },

    /// A copy does not fit.
    #[error("cannot copy {asked} at offset {offset}: {what} holds {there}")]
    CopyRange {
        /// Where the copy would begin.
        offset: Bytes,
        /// How long it would be.
        asked: Bytes,
        /// The side that is too short.
        what: &'static str,
        /// How long that is.
        there: Bytes,
    },

    /// Two events do not lie in the order that was said.
    #[error("the event said to be the earlier one happened later; swap the two")]
    EventOrder,

    /// A stress run that cannot be.
    #[error("cannot stress {what}: {advice}")]
    StressConfig {
        /// What was asked.
        what: String,
        /// What to do about it.
        advice: String,
    },

    /// The backend has no such thing.
    #[error("{backend} has no {what}; {advice}")]
    NotSupported {
        /// What was asked for.
        what: &'static str,
        /// The backend.
        backend: &'static str,
        /// What to do about it.
        advice: &'static str,
    },
}

impl Error {
    /// Whether there was no device to run on, as opposed to one that failed.
    pub fn is_no_device(&self) -> bool {
        matches!(self, Error::NoDevice { .. })
    }

    /// Whether the device is of no more use: a kernel failed and took its context or stream with it.
    pub fn is_fatal(&self) -> bool {
        matches!(self, Error::KernelFault { .. } | Error::Simt { .. } | Error::CpuStream { .. })
    }
}
