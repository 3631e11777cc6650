//! Tests the text of every error. [`position`] fails to compile if a variant is missing there.

use super::*;
use crate::simt::SimtError;

/// The index of an error's variant and detail in [`all`].
fn position(error: &Error) -> usize {
    match error {
        Error::NoDevice { .. } => 0,
        Error::Driver { .. } => 1,
        Error::NotSupported(NotSupported::Backend { .. }) => 2,
        Error::NotSupported(NotSupported::DriverTooOld { .. }) => 3,
        Error::KernelFault(KernelFault::Cuda { .. }) => 4,
        Error::KernelFault(KernelFault::Simt { .. }) => 5,
        Error::KernelFault(KernelFault::CpuStream { .. }) => 6,
        Error::Jit { .. } => 7,
        Error::InvalidModule(InvalidModule::UnknownKernel { .. }) => 8,
        Error::InvalidModule(InvalidModule::KernelSignature { .. }) => 9,
        Error::InvalidModule(InvalidModule::NoGlobalHeap { .. }) => 10,
        Error::InvalidModule(InvalidModule::GlobalHeapLayout { .. }) => 11,
        Error::InvalidLaunch { .. } => 12,
        Error::InvalidConfig(InvalidConfig::Pool { .. }) => 13,
        Error::InvalidRequest(InvalidRequest::Layout { .. }) => 14,
        Error::InvalidRequest(InvalidRequest::HeapLayout { .. }) => 15,
        Error::InvalidRequest(InvalidRequest::SizeOverflow { .. }) => 16,
        Error::InvalidRequest(InvalidRequest::Alignment { .. }) => 17,
        Error::InvalidRequest(InvalidRequest::EventOrder) => 18,
        Error::InvalidFree(InvalidFree::Block { .. }) => 19,
        Error::InvalidFree(InvalidFree::Heap { .. }) => 20,
        Error::InUse { .. } => 21,
        Error::OutOfMemory(OutOfMemory::Device { .. }) => 22,
        Error::OutOfMemory(OutOfMemory::Pool { .. }) => 23,
        Error::OutOfMemory(OutOfMemory::Reservation { .. }) => 24,
        Error::OutOfMemory(OutOfMemory::AddressSpace { .. }) => 25,
        Error::OutOfBounds { .. } => 26,
        Error::Dangling(Dangling::Argument { .. }) => 27,
        Error::Dangling(Dangling::GlobalHeap { .. }) => 28,
        Error::Dangling(Dangling::UnknownGlobalHeap { .. }) => 29,
        Error::WrongDevice { .. } => 30,
        Error::FailureInjected { .. } => 31,
        Error::AllocLog { .. } => 32,
        Error::NotReset { .. } => 33,
    }
}

/// One error of each kind, in the order of [`position`], with its expected text.
fn all() -> Vec<(Error, &'static str)> {
    let mut all = device();
    all.extend(kernel());
    all.extend(request());
    all.extend(memory());
    all.extend(rest());
    all
}

fn device() -> Vec<(Error, &'static str)> {
    let (code, name, detail) = (1, "NAME".to_owned(), "detail".to_owned());
    let advice = "advice";
    vec![
        (
            Error::NoDevice { asked: "GPU 3".into(), found: "there are 2".into(), advice: advice.into() },
            "no usable device: GPU 3 was asked for, but there are 2; advice",
        ),
        (Error::Driver { call: "cuX", code, name, detail }, "cuX failed with NAME (1): detail"),
        (
            NotSupported::Backend { what: "graph", backend: "the CPU backend", advice }.into(),
            "the CPU backend has no graph; advice",
        ),
        (
            NotSupported::DriverTooOld { symbol: "cuX" }.into(),
            "the CUDA driver has no cuX: it is too old (CUDA 11.0 is the oldest that has); update it",
        ),
    ]
}

fn kernel() -> Vec<(Error, &'static str)> {
    let (kernel, symbol) = ("add", "HEAP");
    let (code, name, detail) = (700, "NAME".to_owned(), "detail".to_owned());
    let source = SimtError::Grid {
        grid: crate::simt::Grid { blocks: [0, 1, 1], threads: [1, 1, 1] },
        why: "no blocks",
    };
    vec![
        (
            KernelFault::Cuda { call: "cuX", code, name: name.clone(), detail }.into(),
            "a kernel failed on the GPU before cuX returned: NAME (700): detail; every later call on this device fails \
             too, so end the process; `compute-sanitizer --tool memcheck` names the access",
        ),
        (
            KernelFault::Simt { kernel, source }.into(),
            "kernel `add` failed on the CPU: a grid of [0, 1, 1] blocks of [1, 1, 1] threads cannot be launched: no \
             blocks; this stream runs nothing more",
        ),
        (
            KernelFault::CpuStream { message: "index 3".into() }.into(),
            "the CPU stream panicked: index 3; this is a defect of warpheap, please report it",
        ),
        (
            Error::Jit { code, name, advice: "advice".into(), log: "line 1".into() },
            "the driver could not compile the PTX: NAME (700); advice\nline 1",
        ),
        (
            InvalidModule::UnknownKernel { kernel, known: "`sub`".into() }.into(),
            "the module has no kernel `add` (it has `sub`); where it is loaded by the names of kernels, name this one, \
             too; otherwise the PTX is older than the program, or of other kernels: rebuild it",
        ),
        (
            InvalidModule::KernelSignature { kernel, program: "(u32)".into(), ptx: "(u64)".into() }.into(),
            "kernel `add` takes (u32) in the program but (u64) in the PTX; the PTX is older than the program, or one of \
             the two was built with the feature `debug` and the other without: rebuild it",
        ),
        (
            InvalidModule::NoGlobalHeap { symbol }.into(),
            "the PTX has no `HEAP`, so there is no global allocator to set a heap for; write \
             `warpheap_device::global_heap!();` in the kernel crate and rebuild it",
        ),
        (
            InvalidModule::GlobalHeapLayout { symbol, ptx: Bytes(8), program: Bytes(16) }.into(),
            "`HEAP` has 8 B in the PTX but 16 B in the program; the PTX was built with another version of \
             warpheap-device, or one of the two with its feature `debug`: rebuild it",
        ),
        (
            Error::InvalidLaunch {
                kernel,
                asked: "2048 threads".into(),
                limit: "1024".into(),
                advice: "advice",
            },
            "cannot launch `add`: 2048 threads, but 1024; advice",
        ),
    ]
}

fn request() -> Vec<(Error, &'static str)> {
    let allocator = || "a bump pool".to_owned();
    let (asked, why) = ("0 B".to_owned(), "that is nothing".to_owned());
    vec![
        (
            InvalidConfig::Pool { setting: "blocks", given: "0".into(), why: "at least 1".into() }.into(),
            "cannot make a pool with blocks = 0: at least 1",
        ),
        (
            InvalidRequest::Layout { allocator: allocator(), asked: asked.clone(), why: why.clone() }.into(),
            "a bump pool cannot allocate 0 B: that is nothing",
        ),
        (
            InvalidRequest::HeapLayout { asked, why: why.clone() }.into(),
            "a heap cannot allocate 0 B: that is nothing",
        ),
        (
            InvalidRequest::SizeOverflow { len: 5, element: Bytes(4) }.into(),
            "5 values of 4 B are more bytes than an address can count; ask for fewer",
        ),
        (
            InvalidRequest::Alignment { align: 3, most: 512 }.into(),
            "an alignment of 3 was asked for; it must be a power of two of at most 512",
        ),
        (
            InvalidRequest::EventOrder.into(),
            "the event said to be the earlier one happened later; swap the two",
        ),
        (
            InvalidFree::Block { allocator: allocator(), address: 0x10, why }.into(),
            "a bump pool cannot take back 0x10: that is nothing; give back what its `allocate` returned, with the same \
             layout, and once",
        ),
        (
            InvalidFree::Heap { failed: 1, asked: 2, first: "0x10: free already".into() }.into(),
            "1 of 2 addresses were not given back, the others were: 0x10: free already; give back what the heap's \
             `allocate` returned on the host, or its `alloc` in a kernel, and once",
        ),
        (
            Error::InUse {
                allocator: allocator(),
                blocks: 2,
                bytes: Bytes(8),
                reserved: Bytes(9),
                advice: "advice",
            },
            "a bump pool cannot be reset: 2 blocks of together 8 B are still allocated of 9 B; advice",
        ),
    ]
}

fn memory() -> Vec<(Error, &'static str)> {
    let (requested, reserved, advice) = (Bytes(6), Bytes(5), "advice");
    let (used, cached, largest) = (Bytes(1), Bytes(2), Bytes(3));
    let device = || "GPU 0".to_owned();
    vec![
        (
            OutOfMemory::Device {
                device: device(),
                requested,
                free: Bytes(1),
                total: Bytes(2),
                advice: advice.into(),
            }
            .into(),
            "cannot allocate 6 B on GPU 0: 1 B of 2 B are free; advice",
        ),
        (
            OutOfMemory::Pool {
                allocator: "a limit".into(),
                requested,
                used,
                reserved,
                cached,
                largest,
                advice,
            }
            .into(),
            "a limit cannot allocate 6 B: 1 B of 5 B are in use, 2 B are kept for later, and the largest free block \
             has 3 B; advice",
        ),
        (
            OutOfMemory::Reservation { what: "the heap", asked: requested, reserved, advice }.into(),
            "cannot grow the heap to 6 B: 5 B are reserved for it, once and for all; advice",
        ),
        (
            OutOfMemory::AddressSpace {
                what: "reserve",
                bytes: reserved,
                device: device(),
                why: "no more".into(),
                advice,
            }
            .into(),
            "cannot reserve 5 B of addresses on GPU 0: no more; advice",
        ),
        (
            Error::OutOfBounds { offset: Bytes(4), asked: requested, what: "the buffer", there: reserved },
            "cannot copy 6 B at offset 4 B: the buffer holds 5 B",
        ),
        (
            Dangling::Argument {
                kernel: "add",
                position: 1,
                address: 0x20,
                bytes: reserved,
                device: device(),
                nearest: "nothing is near".into(),
            }
            .into(),
            "argument 1 of `add` names 5 B at 0x20, which lies in no live allocation of GPU 0; nothing is near; keep the \
             buffer alive until the launch, and pass it to its own device",
        ),
        (
            Dangling::GlobalHeap { kernel: "add", address: 0x20, bytes: reserved, device: device() }.into(),
            "`add` would allocate from the heap of 5 B at 0x20 of GPU 0, which was dropped after \
             Module::set_global_heap; keep the heap alive until the launch, or set another",
        ),
        (
            Dangling::UnknownGlobalHeap { kernel: "add" }.into(),
            "`add` might allocate from any heap: the last Module::set_global_heap or clear_global_heap of its module failed; \
             call one of them again before the launch",
        ),
    ]
}

fn rest() -> Vec<(Error, &'static str)> {
    vec![
        (
            Error::WrongDevice { what: "the stream", expected: "GPU 0".into(), got: "GPU 1".into() },
            "the stream belongs to GPU 1, but the call is for GPU 0; use things of one device together",
        ),
        (
            Error::FailureInjected { call: 2 },
            "call 2 of an allocator failed: a FailureInjected was told to let it fail",
        ),
        (
            Error::AllocLog { what: "read", why: "line 3".into(), advice: "mend that line" },
            "the log of allocations cannot be read: line 3; mend that line",
        ),
        (
            Error::NotReset { pool: "a heap" },
            "a heap cannot be used: its last reset failed; call `reset` again before anything else, or drop it",
        ),
    ]
}

#[test]
fn every_error_has_its_text() {
    let all = all();
    assert_eq!(all.len(), 34);
    for (at, (error, text)) in all.iter().enumerate() {
        assert_eq!(position(error), at, "{error:?}");
        assert_eq!(error.to_string(), *text, "{error:?}");
    }
}

#[test]
fn predicates_follow_the_variants() {
    for (error, text) in all() {
        assert_eq!(error.is_no_device(), matches!(error, Error::NoDevice { .. }), "{text}");
        assert_eq!(error.is_fatal(), (4..=6).contains(&position(&error)), "{text}");
    }
}

/// The source of a detail is the source of the enclosing error.
#[test]
fn the_source_of_a_cpu_fault_is_the_executors_error() {
    let sources = all().into_iter().filter_map(|(error, _)| {
        std::error::Error::source(&error).map(|source| source.downcast_ref::<SimtError>().is_some())
    });
    assert_eq!(sources.collect::<Vec<_>>(), [true]);
}

/// A successful allocation returns a value of this size too.
#[test]
fn an_error_is_small() {
    assert!(size_of::<Error>() <= 96, "{}", size_of::<Error>());
}
