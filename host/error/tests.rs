//! Tests the text of every error against `messages.txt`. [`position`] fails to compile if a variant
//! is missing there.

use super::*;
use crate::simt::{Grid, Panic, SimtError};

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
        Error::InvalidModule(InvalidModule::NoDelays { .. }) => 11,
        Error::InvalidModule(InvalidModule::VariableLayout { .. }) => 12,
        Error::InvalidLaunch { .. } => 13,
        Error::InvalidConfig(InvalidConfig::Pool { .. }) => 14,
        Error::InvalidRequest(InvalidRequest::Layout { .. }) => 15,
        Error::InvalidRequest(InvalidRequest::HeapLayout { .. }) => 16,
        Error::InvalidRequest(InvalidRequest::SizeOverflow { .. }) => 17,
        Error::InvalidRequest(InvalidRequest::Alignment { .. }) => 18,
        Error::InvalidRequest(InvalidRequest::EventOrder) => 19,
        Error::InvalidFree(InvalidFree::Block { .. }) => 20,
        Error::InvalidFree(InvalidFree::Heap { .. }) => 21,
        Error::InUse { .. } => 22,
        Error::OutOfMemory(OutOfMemory::Device { .. }) => 23,
        Error::OutOfMemory(OutOfMemory::Pool { .. }) => 24,
        Error::OutOfMemory(OutOfMemory::Reservation { .. }) => 25,
        Error::OutOfMemory(OutOfMemory::AddressSpace { .. }) => 26,
        Error::OutOfBounds { .. } => 27,
        Error::Dangling(Dangling::Argument { .. }) => 28,
        Error::Dangling(Dangling::GlobalHeap { .. }) => 29,
        Error::Dangling(Dangling::UnknownGlobalHeap { .. }) => 30,
        Error::WrongDevice { .. } => 31,
        Error::FailureInjected { .. } => 32,
        Error::AllocLog { .. } => 33,
        Error::NotReset { .. } => 34,
        Error::InvalidConfig(InvalidConfig::GrowableBuffer { .. }) => 35,
        Error::InvalidRequest(InvalidRequest::Misaligned { .. }) => 36,
        Error::InvalidConfig(InvalidConfig::Delays { .. }) => 37,
        Error::KernelFault(KernelFault::Panicked { .. }) => 38,
        Error::InvalidModule(InvalidModule::NoPanicHandler { .. }) => 39,
        Error::Forked => 40,
        Error::NoThread { .. } => 41,
        Error::InvalidModule(InvalidModule::CubinOfOtherPtx { .. }) => 42,
        Error::InvalidModule(InvalidModule::NoCubin { .. }) => 43,
        Error::InvalidRequest(InvalidRequest::StreamPerThread) => 44,
    }
}

/// One error of each kind, in the order of [`position`].
fn all() -> Vec<Error> {
    [device(), kernel(), request(), memory(), rest()].concat()
}

fn device() -> Vec<Error> {
    let (requested, found, advice) = ("GPU 3".into(), "there are 2".into(), "advice".into());
    let (code, name, detail) = (1, "NAME".into(), "detail".into());
    vec![
        Error::NoDevice { requested, found, advice },
        Error::Driver { call: "cuX", code, name, detail },
        NotSupported::Backend { what: "graph", backend: "the CPU backend", advice: "advice" }.into(),
        NotSupported::DriverTooOld { symbol: "cuX" }.into(),
    ]
}

fn kernel() -> Vec<Error> {
    let (kernel, symbol, advice) = ("add", "HEAP", "advice");
    let (code, name, detail) = (700, "NAME".to_owned(), "detail".into());
    let (requested, limit, log) = ("2048 threads".into(), "1024".into(), "line 1".into());
    let grid = Grid { blocks: [0, 1, 1], threads: [1, 1, 1] };
    vec![
        KernelFault::Cuda { call: "cuX", code, name: name.clone(), detail }.into(),
        KernelFault::Simt { kernel, source: SimtError::Grid { grid, why: "no blocks" } }.into(),
        KernelFault::CpuStream { message: "index 3".into() }.into(),
        Error::Jit { code, name, advice: advice.into(), log },
        InvalidModule::UnknownKernel { kernel, known: "`sub`".into() }.into(),
        InvalidModule::KernelSignature { kernel, program: "(u32)".into(), ptx: "(u64)".into() }.into(),
        InvalidModule::NoGlobalHeap { symbol }.into(),
        InvalidModule::NoDelays { symbol }.into(),
        InvalidModule::VariableLayout { symbol, ptx: Bytes(8), program: Bytes(16) }.into(),
        Error::InvalidLaunch { kernel, requested, limit, advice },
    ]
}

fn request() -> Vec<Error> {
    let (allocator, requested, why) = ("a bump pool".to_owned(), "0 B".to_owned(), "it is 0".to_owned());
    let (bytes, reserved, advice) = (Bytes(8), Bytes(9), "advice");
    vec![
        InvalidConfig::Pool { setting: "blocks", given: "0".into(), why: "at least 1".into() }.into(),
        InvalidRequest::Layout {
            allocator: allocator.clone(),
            requested: requested.clone(),
            why: why.clone(),
        }
        .into(),
        InvalidRequest::HeapLayout { requested, why: why.clone() }.into(),
        InvalidRequest::SizeOverflow { len: 5, element: Bytes(4) }.into(),
        InvalidRequest::Alignment { align: 3, max: 512 }.into(),
        InvalidRequest::EventOrder.into(),
        InvalidFree::Block { allocator: allocator.clone(), address: 0x10, why }.into(),
        InvalidFree::Heap { failed: 1, requested: 2, first: "0x10 is already free".into() }.into(),
        Error::InUse { allocator, blocks: 2, bytes, reserved, advice },
    ]
}

fn memory() -> Vec<Error> {
    let (requested, reserved, bytes, advice) = (Bytes(6), Bytes(5), Bytes(5), "advice");
    let (used, cached, largest) = (Bytes(1), Bytes(2), Bytes(3));
    let (kernel, address, device) = ("add", 0x20, || "GPU 0".to_owned());
    let (free, total, allocator) = (Bytes(1), Bytes(2), "a limit".into());
    let (why, nearest) = ("no more".into(), "nothing is near".into());
    vec![
        OutOfMemory::Device { device: device(), requested, free, total, advice: advice.into(), report: None }
            .into(),
        OutOfMemory::Pool { allocator, requested, used, reserved, cached, largest, advice, report: None }
            .into(),
        OutOfMemory::Reservation { what: "the heap", requested, reserved, advice }.into(),
        OutOfMemory::AddressSpace { what: "reserve", bytes, device: device(), why, advice }.into(),
        Error::OutOfBounds { offset: Bytes(4), requested, what: "the buffer", size: reserved },
        Dangling::Argument { kernel, position: 1, address, bytes, device: device(), nearest }.into(),
        Dangling::GlobalHeap { kernel, address, bytes, device: device() }.into(),
        Dangling::UnknownGlobalHeap { kernel }.into(),
    ]
}

fn rest() -> Vec<Error> {
    vec![
        Error::WrongDevice { what: "the stream", expected: "GPU 0".into(), got: "GPU 1".into() },
        Error::FailureInjected { call: 2 },
        Error::AllocLog { what: "read", why: "line 3".into(), advice: "correct that line" },
        Error::NotReset { pool: "a heap" },
        InvalidConfig::GrowableBuffer { bytes: Bytes(0) }.into(),
        InvalidRequest::Misaligned { offset: Bytes(2), address: 0x42, align: 4 }.into(),
        InvalidConfig::Delays { why: "no more".into() }.into(),
        panicked(false),
        InvalidModule::NoPanicHandler { symbol: "PANICS" }.into(),
        Error::Forked,
        Error::NoThread { what: "a stream", why: "no more".into(), advice: "advice" },
        InvalidModule::CubinOfOtherPtx { arch: "sm_90".into() }.into(),
        InvalidModule::NoCubin { position: 1 }.into(),
        InvalidRequest::StreamPerThread.into(),
    ]
}

/// Panics that ended their threads, or the grid too.
fn panicked(ended_grid: bool) -> Error {
    let mut panic = Panic::default();
    (panic.file, panic.line, panic.column) = ("src/lib.rs".into(), 45, 47);
    (panic.thread, panic.others, panic.ended_grid) = (3, 204, ended_grid);
    KernelFault::Panicked { kernels: "kernel `add`".into(), panic: Box::new(panic), advice: "advice" }.into()
}

#[test]
fn every_error_has_its_text() {
    let texts: Vec<_> = include_str!("messages.txt").lines().collect();
    assert_eq!((all().len(), texts.len()), (45, 45));
    for (at, (error, text)) in all().iter().zip(texts).enumerate() {
        assert_eq!(position(error), at, "{error:?}");
        assert_eq!(error.to_string().replace('\n', "\\n"), text, "{error:?}");
    }
}

#[test]
fn predicates_follow_the_variants() {
    for error in all() {
        assert_eq!(error.is_no_device(), matches!(error, Error::NoDevice { .. }), "{error}");
        assert_eq!(error.is_fatal(), (4..=6).contains(&position(&error)), "{error}");
    }
    assert!(panicked(true).is_fatal());
}

/// The source of a detail is the source of the enclosing error.
#[test]
fn the_source_of_a_cpu_fault_is_the_executors_error() {
    let sources = all().into_iter().filter_map(|error| {
        std::error::Error::source(&error).map(|source| source.downcast_ref::<SimtError>().is_some())
    });
    assert_eq!(sources.collect::<Vec<_>>(), [true]);
}

/// A successful allocation returns a value of this size too.
#[test]
fn an_error_is_small() {
    assert!(size_of::<Error>() <= 96, "{}", size_of::<Error>());
}

#[test]
fn only_out_of_memory_errors_of_pools_have_a_report() {
    for error in all() {
        let before = error.to_string();
        let report = |_| crate::report::MemoryReport { allocator: "a limit".into(), ..Default::default() };
        let with = error.with_report(report);
        let has_report = (23..=24).contains(&position(&with));
        assert_eq!(with.report().is_some(), has_report, "{with}");
        assert_eq!(with.to_string().contains("\nreport of a limit\n"), has_report, "{with}");
        assert!(has_report || with.to_string() == before, "{with}");
    }
}
