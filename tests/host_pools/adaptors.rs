//! The behaviour that each adaptor adds.

use crate::cases::layout;
use crate::suite::give;
use std::alloc::Layout;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::num::NonZeroU64;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use warpheap::host_pools::{
    BlockPool, DeviceAllocator, FailureInjected, Failures, Limit, LogAction, Logged, Statistics,
    SyncDriverAllocator, Usage, read_log,
};
use warpheap::{Device, Error, Result, Stream};
use warpheap_device::kernel::DevicePtr;

fn cpu() -> (Device, Stream) {
    let device = Device::cpu();
    let stream = device.stream().unwrap();
    (device, stream)
}

#[test]
fn statistics_count_what_is_live_and_what_failed() {
    let (device, stream) = cpu();
    let counted = Statistics::new(Limit::new(SyncDriverAllocator::new(&device), 1000));
    let take = |size| (counted.allocate(layout(size, 8), &stream).unwrap(), layout(size, 8));
    let (first, second) = (take(600), take(300));
    assert!(counted.allocate(layout(101, 8), &stream).is_err());
    give(&counted, first, &stream).unwrap();
    assert!(give(&counted, first, &stream).is_err());
    let third = take(100);
    let stats = counted.stats();
    assert_eq!((stats.live_blocks, stats.live_bytes, stats.peak_blocks, stats.peak_bytes), (2, 400, 2, 900));
    assert_eq!((stats.allocs, stats.frees, stats.failed_allocs, stats.failed_frees), (3, 1, 1, 1));
    give(&counted, second, &stream).unwrap();
    give(&counted, third, &stream).unwrap();
    let stats = counted.stats();
    assert_eq!((stats.live_blocks, stats.live_bytes, stats.peak_bytes, stats.frees), (0, 0, 900, 3));
    let json = serde_json::to_value(stats).unwrap();
    assert_eq!(json["peak_bytes"], 900);
}

#[test]
fn a_wrong_free_leaves_the_counts_as_they_are() {
    let (device, stream) = cpu();
    let counted = Statistics::new(SyncDriverAllocator::new(&device));
    assert!(give(&counted, (DevicePtr::null(), layout(1 << 40, 8)), &stream).is_err());
    let stats = counted.stats();
    assert_eq!((stats.live_blocks, stats.live_bytes, stats.peak_bytes, stats.failed_frees), (0, 0, 0, 1));
}

#[test]
fn a_limit_is_exact_and_says_what_is_left() {
    let (device, stream) = cpu();
    let limited = Limit::new(SyncDriverAllocator::new(&device), 1 << 20);
    let most = (limited.allocate(layout(1 << 20, 1), &stream).unwrap(), layout(1 << 20, 1));
    let error = limited.allocate(layout(1, 1), &stream).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a limit cannot allocate 1 B: 1048576 B (1.0 MiB) of 1048576 B (1.0 MiB) are in use, 0 B are kept for later, and the \
         largest free block has 0 B; free blocks, or raise the limit (Limit::new)"
    );
    give(&limited, most, &stream).unwrap();
    assert!(limited.allocate(layout((1 << 20) + 1, 1), &stream).is_err());
    // An allocation that fails upstream does not count.
    let pool = BlockPool::builder(layout(64, 64), 2).build_over(SyncDriverAllocator::new(&device)).unwrap();
    let limited = Limit::new(pool, 100);
    assert!(limited.allocate(layout(65, 1), &stream).is_err());
    let error = limited.allocate(layout(101, 1), &stream).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a limit cannot allocate 101 B: 0 B of 100 B are in use, 128 B are kept for later, and the largest free block has 64 B; \
         free blocks, or raise the limit (Limit::new)"
    );
    let block = (limited.allocate(layout(64, 1), &stream).unwrap(), layout(64, 1));
    assert_eq!(limited.usage().largest_free_bytes, Some(36));
    give(&limited, block, &stream).unwrap();
    assert_eq!((limited.limit(), limited.usage().largest_free_bytes), (100, Some(64)));
}

#[test]
fn a_log_has_a_row_for_every_call() {
    let (device, stream) = cpu();
    let logged = Logged::new(Limit::new(SyncDriverAllocator::new(&device), 5000), Vec::new());
    let block = (logged.allocate(layout(4096, 512), &stream).unwrap(), layout(4096, 512));
    assert!(logged.allocate(layout(8192, 8), &stream).is_err());
    let other = device.stream().unwrap();
    let from_elsewhere = std::thread::scope(|scope| {
        let thread = scope.spawn(|| give(&logged, block, &other));
        thread.join().unwrap()
    });
    from_elsewhere.unwrap();
    assert!(give(&logged, block, &stream).is_err());
    logged.flush().unwrap();
    let (_, bytes) = logged.into_parts().unwrap();
    let text = String::from_utf8(bytes).unwrap();
    assert!(text.starts_with("thread,time,action,pointer,size,stream,align\n"), "{text}");
    let (address, id) = (block.0.0 as u64, stream.id());
    assert!(text.contains(&format!(",allocate,{address:#x},4096,{id},512\n")), "{text}");
    assert!(text.contains(&format!(",allocate failure,0x0,8192,{id},8\n")), "{text}");

    let rows = read_log(text.as_bytes()).unwrap();
    let actions: Vec<_> = rows.iter().map(|row| row.action).collect();
    use LogAction::{Allocate, AllocateFailure, Free, FreeFailure};
    assert_eq!(actions, [Allocate, AllocateFailure, Free, FreeFailure]);
    assert!(rows.is_sorted_by_key(|row| row.time));
    assert_eq!((rows[0].thread, rows[0].stream), (rows[1].thread, id.number()));
    assert_ne!((rows[2].thread, rows[2].stream), (rows[0].thread, rows[0].stream));
    assert_eq!((rows[2].pointer, rows[2].size, rows[2].align), (address, 4096, 512));
}

/// Sorted by time, each address of a log is free, then live, then free.
#[test]
fn a_log_of_many_threads_can_be_replayed_in_the_order_of_its_times() {
    let (device, _) = cpu();
    let pool = BlockPool::builder(layout(256, 256), 6).build_over(SyncDriverAllocator::new(&device)).unwrap();
    let logged = Logged::new(pool, Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let stream = device.stream().unwrap();
                for _ in 0..2000 {
                    if let Ok(ptr) = logged.allocate(layout(256, 256), &stream) {
                        give(&logged, (ptr, layout(256, 256)), &stream).unwrap();
                    }
                }
            });
        }
    });
    let (_, bytes) = logged.into_parts().unwrap();
    let (rows, mut live) = (read_log(&bytes[..]).unwrap(), BTreeSet::new());
    assert_eq!(rows.iter().map(|row| row.thread).collect::<BTreeSet<_>>().len(), 4);
    for row in &rows {
        match row.action {
            LogAction::Allocate => assert!(live.insert(row.pointer), "{row:?}"),
            LogAction::Free => assert!(live.remove(&row.pointer), "{row:?}"),
            LogAction::AllocateFailure => {}
            LogAction::FreeFailure => panic!("{row:?}"),
        }
    }
    assert!(live.is_empty());
}

/// An allocator in which one allocation overlaps one free: the free is called while the allocation
/// is under way, and returns after it.
struct Meeting {
    upstream: BlockPool<SyncDriverAllocator>,
    points: [Barrier; 3],
    meets: AtomicBool,
}

impl Meeting {
    fn meets(&self) -> bool {
        self.meets.load(Ordering::Relaxed)
    }
}

// SAFETY: forwards to `BlockPool`, which upholds the contract of `DeviceAllocator`.
unsafe impl DeviceAllocator for Meeting {
    fn device(&self) -> &Device {
        self.upstream.device()
    }

    fn allocate(&self, layout: Layout, stream: &Stream) -> Result<DevicePtr<u8>> {
        if self.meets() {
            self.points[0].wait();
            self.points[1].wait();
        }
        self.upstream.allocate(layout, stream)
    }

    unsafe fn deallocate(&self, ptr: DevicePtr<u8>, layout: Layout, stream: &Stream) -> Result<()> {
        // SAFETY: the caller upholds the contract of `deallocate`, which is passed on.
        let done = unsafe { self.upstream.deallocate(ptr, layout, stream) };
        if self.meets() {
            self.points[1].wait();
            self.points[2].wait();
        }
        done
    }

    fn usage(&self) -> Usage {
        self.upstream.usage()
    }
}

/// The block becomes free while its free is still under way. Another thread can allocate and log it
/// before that free has logged its row.
#[test]
fn an_address_that_goes_from_hand_to_hand_is_logged_in_order() {
    let (device, stream) = cpu();
    let upstream =
        BlockPool::builder(layout(64, 64), 1).build_over(SyncDriverAllocator::new(&device)).unwrap();
    let points = [(); 3].map(|()| Barrier::new(2));
    let logged = Logged::new(Meeting { upstream, points, meets: AtomicBool::new(false) }, Vec::new());
    let block = (logged.allocate(layout(64, 64), &stream).unwrap(), layout(64, 64));
    logged.upstream().meets.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            logged.allocate(layout(64, 64), &stream).unwrap();
            logged.upstream().points[2].wait();
        });
        logged.upstream().points[0].wait();
        give(&logged, block, &stream).unwrap();
    });
    logged.upstream().meets.store(false, Ordering::Relaxed);
    give(&logged, block, &stream).unwrap();
    let (_, bytes) = logged.into_parts().unwrap();
    let rows = read_log(&bytes[..]).unwrap();
    let actions: Vec<_> = rows.iter().map(|row| row.action).collect();
    use LogAction::{Allocate, Free};
    assert_eq!(actions, [Allocate, Free, Allocate, Free]);
    assert!(rows.iter().all(|row| row.pointer == block.0.0 as u64));
}

struct Full;

impl Write for Full {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::Error::new(io::ErrorKind::StorageFull, "no room"))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_log_that_cannot_be_written_says_so_and_disturbs_no_call() {
    let (device, stream) = cpu();
    let logged = Logged::new(SyncDriverAllocator::new(&device), Full);
    for _ in 0..1000 {
        let block = (logged.allocate(layout(8, 8), &stream).unwrap(), layout(8, 8));
        give(&logged, block, &stream).unwrap();
    }
    for _ in 0..2 {
        let error = logged.flush().unwrap_err();
        assert!(matches!(error, Error::AllocLog { what: "written", .. }), "{error}");
        assert!(error.to_string().contains("no room"), "{error}");
    }
    assert!(logged.into_parts().is_err());
}

#[test]
fn what_is_no_log_is_refused() {
    for text in ["thread,time\n1,2\n", "thread,time,action,pointer,size,stream,align\n1,2,lend,0x0,4,1,1\n"] {
        let error = read_log(text.as_bytes()).unwrap_err();
        assert!(matches!(error, Error::AllocLog { what: "read", .. }), "{error}");
    }
    let odd = "thread,time,action,pointer,size,stream,align\n1,2,free,0xz,4,1,1\n";
    assert!(read_log(odd.as_bytes()).unwrap_err().to_string().contains("`0xz` is no address"));
    assert_eq!(read_log(&b""[..]).unwrap(), []);
}

#[test]
fn the_call_that_is_to_fail_fails_and_no_other() {
    let (device, stream) = cpu();
    let flawed = FailureInjected::new(SyncDriverAllocator::new(&device), Failures::Nth(2));
    let block = (flawed.allocate(layout(64, 64), &stream).unwrap(), layout(64, 64));
    let error = give(&flawed, block, &stream).unwrap_err();
    assert!(matches!(error, Error::FailureInjected { call: 2 }), "{error}");
    assert_eq!(flawed.usage().used_bytes, 64, "it was not passed on");
    give(&flawed, block, &stream).unwrap();
    assert_eq!((flawed.calls(), flawed.failed()), (3, 1));
}

#[test]
fn calls_fail_as_often_as_the_chance_says() {
    let (device, stream) = cpu();
    let failed = |one_in, seed| {
        let which = Failures::OneIn(NonZeroU64::new(one_in).unwrap(), seed);
        let flawed = FailureInjected::new(SyncDriverAllocator::new(&device), which);
        let fails = |_| give(&flawed, (DevicePtr::null(), layout(1, 1)), &stream).unwrap_err();
        let calls = (0..4000).map(fails).map(|error| matches!(error, Error::FailureInjected { .. }));
        calls.collect::<Vec<_>>()
    };
    assert!(failed(1, 7).iter().all(|failed| *failed));
    assert_eq!(failed(10, 7), failed(10, 7));
    assert_ne!(failed(10, 7), failed(10, 8));
    let count = failed(10, 7).iter().filter(|failed| **failed).count();
    assert!((300..500).contains(&count), "{count} of 4000");
}

/// Events that a subscriber received.
#[derive(Clone, Default)]
struct Events(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

impl Write for Events {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The events during `run`, one line each.
pub fn events_of(run: impl FnOnce()) -> String {
    // With a single dispatcher, `tracing` caches the interest of the first thread that reaches an
    // event, which may be the thread of another test.
    let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
    let events = Events::default();
    let writer = events.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, run);
    String::from_utf8(events.0.lock().unwrap().clone()).unwrap()
}

#[test]
fn every_call_is_an_event() {
    let (device, stream) = cpu();
    let text = events_of(|| {
        let traced = warpheap::host_pools::Traced::new(Limit::new(SyncDriverAllocator::new(&device), 100));
        let block = (traced.allocate(layout(64, 8), &stream).unwrap(), layout(64, 8));
        assert!(traced.allocate(layout(64, 8), &stream).is_err());
        give(&traced, block, &stream).unwrap();
        assert!(give(&traced, block, &stream).is_err());
    });
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    let wanted = [
        ("DEBUG", "allocated"),
        ("WARN", "not allocated"),
        ("DEBUG", "given back"),
        ("WARN", "not given back"),
    ];
    for (line, (level, words)) in lines.iter().zip(wanted) {
        let all = [level, words, "warpheap::host_pools", "bytes=64", &format!("stream={}", stream.id())];
        assert!(all.iter().all(|part| line.contains(part)), "{line}");
    }
}
