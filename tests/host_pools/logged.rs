//! Logs: their rows, their order, and failures to write and to read them.

use crate::prelude::*;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_log_has_a_row_for_every_call() {
    let (device, stream) = cpu();
    let logged = Logged::new(Limit::new(driver(&device), 5000), Vec::new());
    let scope = tag("layer 3, \"keys\"");
    let block = alloc(&logged, layout(4096, 512), &stream);
    drop(scope);
    assert!(logged.allocate(layout(8192, 8), &stream).is_err());
    let other = device.stream().unwrap();
    let from_elsewhere = std::thread::scope(|scope| {
        let thread = scope.spawn(|| free(&logged, block, &other));
        thread.join().unwrap()
    });
    from_elsewhere.unwrap();
    assert!(free(&logged, block, &stream).is_err());
    logged.flush().unwrap();
    let (_, bytes) = logged.into_parts().unwrap();
    let text = String::from_utf8(bytes).unwrap();
    assert!(text.starts_with("thread,time,action,pointer,size,stream,align,tag\n"), "{text}");
    let (address, id) = (block.0.0 as u64, stream.id());
    assert!(
        text.contains(&format!(",allocate,{address:#x},4096,{id},512,\"layer 3, \"\"keys\"\"\"\n")),
        "{text}"
    );
    assert!(text.contains(&format!(",allocate failure,0x0,8192,{id},8,\n")), "{text}");

    let rows = read_log(text.as_bytes()).unwrap();
    let actions: Vec<_> = rows.iter().map(|row| row.action).collect();
    use LogAction::{Allocate, AllocateFailure, Free, FreeFailure};
    assert_eq!(actions, [Allocate, AllocateFailure, Free, FreeFailure]);
    assert!(rows.is_sorted_by_key(|row| row.time));
    assert_eq!((rows[0].thread, rows[0].stream), (rows[1].thread, id.number()));
    assert_ne!((rows[2].thread, rows[2].stream), (rows[0].thread, rows[0].stream));
    assert_eq!((rows[2].pointer, rows[2].size, rows[2].align), (address, 4096, 512));
    let tags: Vec<_> = rows.iter().map(|row| row.tag.as_deref()).collect();
    assert_eq!(tags, [Some("layer 3, \"keys\""), None, None, None]);
}

/// Sorted by time, each address of a log is free, then live, then free.
#[test]
fn a_log_of_many_threads_is_consistent_in_order_of_time() {
    let (device, _) = cpu();
    let pool = block_pool(&device, layout(256, 256), 6);
    let logged = Logged::new(pool, Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let stream = device.stream().unwrap();
                for _ in 0..2000 {
                    if let Ok(ptr) = logged.allocate(layout(256, 256), &stream) {
                        free(&logged, (ptr, layout(256, 256)), &stream).unwrap();
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
struct Overlapping {
    upstream: BlockPool<SyncDriverAllocator>,
    points: [Barrier; 3],
    overlaps: AtomicBool,
}

impl Overlapping {
    fn overlaps(&self) -> bool {
        self.overlaps.load(Ordering::Relaxed)
    }
}

// SAFETY: forwards to `BlockPool`, which upholds the contract of `DeviceAllocator`.
unsafe impl DeviceAllocator for Overlapping {
    fn device(&self) -> &Device {
        self.upstream.device()
    }

    fn allocate(&self, layout: Layout, stream: &Stream) -> Result<DevicePtr<u8>> {
        if self.overlaps() {
            self.points[0].wait();
            self.points[1].wait();
        }
        self.upstream.allocate(layout, stream)
    }

    unsafe fn deallocate(&self, ptr: DevicePtr<u8>, layout: Layout, stream: &Stream) -> Result<()> {
        // SAFETY: the caller upholds the contract of `deallocate`, which is passed on.
        let done = unsafe { self.upstream.deallocate(ptr, layout, stream) };
        if self.overlaps() {
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
fn a_reused_address_is_logged_in_order() {
    let (device, stream) = cpu();
    let upstream = block_pool(&device, layout(64, 64), 1);
    let points = [(); 3].map(|()| Barrier::new(2));
    let logged = Logged::new(Overlapping { upstream, points, overlaps: AtomicBool::new(false) }, Vec::new());
    let block = alloc(&logged, layout(64, 64), &stream);
    logged.upstream().overlaps.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            logged.allocate(layout(64, 64), &stream).unwrap();
            logged.upstream().points[2].wait();
        });
        logged.upstream().points[0].wait();
        free(&logged, block, &stream).unwrap();
    });
    logged.upstream().overlaps.store(false, Ordering::Relaxed);
    free(&logged, block, &stream).unwrap();
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
fn write_failures_are_reported_and_do_not_affect_calls() {
    let (device, stream) = cpu();
    let logged = Logged::new(driver(&device), Full);
    for _ in 0..1000 {
        let block = alloc(&logged, layout(8, 8), &stream);
        free(&logged, block, &stream).unwrap();
    }
    for _ in 0..2 {
        let error = logged.flush().unwrap_err();
        assert!(matches!(error, Error::AllocLog { what: "written", .. }), "{error}");
        assert!(error.to_string().contains("no room"), "{error}");
    }
    assert!(logged.into_parts().is_err());
}

#[test]
fn invalid_logs_are_rejected_and_empty_ones_have_no_rows() {
    let error = read_log(&b"thread,time\n1,2\n"[..]).unwrap_err();
    assert!(matches!(error, Error::AllocLog { what: "read", .. }), "{error}");
    assert_eq!(read_log(&b""[..]).unwrap(), []);
}

/// Nanoseconds since the log was begun.
#[test]
fn the_times_of_a_log_are_those_of_the_calls() {
    let (device, stream) = cpu();
    let (start, apart) = (std::time::Instant::now(), std::time::Duration::from_millis(2));
    let logged = Logged::new(driver(&device), Vec::new());
    let block = alloc(&logged, layout(64, 8), &stream);
    std::thread::sleep(apart);
    free(&logged, block, &stream).unwrap();
    let elapsed = start.elapsed().as_nanos() as u64;
    let (_, bytes) = logged.into_parts().unwrap();
    let rows = read_log(&bytes[..]).unwrap();
    assert!(rows[1].time - rows[0].time >= apart.as_nanos() as u64, "{rows:?}");
    assert!(rows[1].time <= elapsed, "{rows:?}");
}
