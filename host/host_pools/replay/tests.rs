use super::player::planted;
use super::*;
use crate::driver::Stream;
use crate::host_pools::{
    DeviceAllocator, FailureInjected, Failures, LogAction, Logged, SyncDriverAllocator, read_rows,
};
use crate::usage::Usage;
use std::alloc::Layout;
use std::thread;
use warpheap_device::kernel::DevicePtr;

const NAMES: &str = "thread,time,action,pointer,size,stream,align\n";
const KINDS: [Hosts; 2] = [Hosts::One, Hosts::AsLogged];

fn trace(rows: &str) -> Trace {
    Trace::read(format!("{NAMES}{rows}").as_bytes()).unwrap()
}

fn config(hosts: Hosts) -> ReplayConfig {
    ReplayConfig { bytes: None, hosts }
}

/// Three threads and two streams; at most 600 B are live.
const LOG: &str = "\
    7,10,allocate,0x100,100,3,8\n\
    8,20,allocate,0x200,200,4,64\n\
    7,30,allocate,0x300,300,3,8\n\
    9,40,free,0x200,200,3,64\n\
    8,50,allocate,0x200,50,4,8\n\
    7,60,free,0x100,100,4,8\n\
    9,70,free,0x300,300,3,8\n\
    8,80,free,0x200,50,4,8\n";

#[test]
fn a_log_is_replayed_as_it_is_on_every_pool_and_by_any_threads() {
    let (device, trace) = (Device::cpu(), trace(LOG));
    let summary = trace.summary();
    assert_eq!((summary.rows, summary.allocations, summary.frees), (8, 4, 4));
    assert_eq!((summary.threads, summary.streams, summary.peak_live_bytes), (3, 2, 600));
    assert!((summary.seconds - 70e-9).abs() < 1e-12 && summary.leaks.count == 0);
    for kind in POOLS {
        for hosts in KINDS {
            let report = replay(&device, kind, &trace, config(hosts)).unwrap();
            assert!(report.is_clean(), "{report:?}");
            assert_eq!(
                (report.operations, report.failed_allocations.count, report.peak_live_bytes),
                (8, 0, 600)
            );
            assert!(report.peak_reserved_bytes >= report.peak_used_bytes && report.peak_used_bytes >= 600);
            let all = 1.0 - 600.0 / report.peak_reserved_bytes as f64;
            assert!((report.fragmentation - all).abs() < 1e-12, "{report:?}");
            assert!(report.seconds > 0.0 && report.call_ns.p99 >= report.call_ns.median);
        }
    }
    assert_eq!(device.memory_in_use(), (0, 0));
}

/// Equal blocks are as large as the largest request: 3 of 320 B for 600 B.
#[test]
fn the_memory_that_equal_blocks_waste_is_reported() {
    let blocks = PoolKind::find("blocks").unwrap();
    let report = replay(&Device::cpu(), blocks, &trace(LOG), config(Hosts::One)).unwrap();
    assert_eq!((report.peak_used_bytes, report.peak_reserved_bytes), (960, 960));
    assert!((report.fragmentation - 0.375).abs() < 1e-9, "{}", report.fragmentation);
}

#[test]
fn threads_streams_and_the_order_are_those_of_the_log() {
    for hosts in KINDS {
        let pool = Logged::new(SyncDriverAllocator::new(&Device::cpu()), Vec::new());
        play(&trace(LOG).script, &pool, hosts).unwrap();
        let (_, log) = pool.into_parts().unwrap();
        let calls: Vec<_> = read_rows(&log[..]).unwrap().into_iter().map(|row| row.record).collect();
        let what: Vec<_> = calls.iter().map(|call| (call.action == LogAction::Allocate, call.size)).collect();
        let [a, f] = [true, false];
        let expected = [(a, 100), (a, 200), (a, 300), (f, 200), (a, 50), (f, 100), (f, 300), (f, 50)];
        assert_eq!(what, expected, "{hosts:?}");
        // As in the log: 7 8 7 9 8 7 9 8, and 3 4 3 3 4 4 3 4.
        let same = |a: usize, b: usize| calls[a].thread == calls[b].thread;
        let on_same = |a: usize, b: usize| calls[a].stream == calls[b].stream;
        assert!(same(0, 2) && same(0, 5) && same(1, 4) && same(1, 7) && same(3, 6), "{hosts:?}");
        assert_eq!(!same(0, 1) && !same(0, 3) && !same(1, 3), hosts == Hosts::AsLogged);
        assert!(on_same(0, 3) && on_same(0, 6) && on_same(1, 5) && on_same(1, 7) && !on_same(0, 1));
    }
}

#[test]
fn inconsistent_logs_are_reported_and_nothing_is_lost() {
    let log = "\
        1,1,free,0x900,64,1,8\n\
        1,2,allocate,0x100,100,1,8\n\
        1,3,allocate,0x100,40,1,8\n\
        1,4,free,0x100,41,1,8\n\
        1,5,allocate,0x200,7,1,8\n\
        1,6,allocate failure,0x0,8192,1,8\n\
        1,7,free failure,0x500,1,1,8\n\
        1,8,allocate,0x0,0,1,8\n\
        1,9,free,0x0,0,1,8\n";
    let (device, trace) = (Device::cpu(), trace(log));
    let summary = trace.summary();
    let said = |findings: &Findings| (findings.count, findings.bytes, findings.first[0].line);
    assert_eq!(said(&summary.unmatched_frees), (1, 64, 2));
    assert_eq!(said(&summary.allocated_twice), (1, 40, 4));
    assert_eq!(said(&summary.other_sizes), (1, 41, 5));
    assert_eq!(said(&summary.leaks), (2, 107, 3));
    assert!(summary.allocated_twice.first[0].what.contains("live since line 3"));
    assert!(summary.other_sizes.first[0].what.contains("41 B are freed, but line 4 allocated 40 B"));
    let sum = summary.allocations + summary.frees + summary.failures + summary.empty;
    assert_eq!(sum + summary.unmatched_frees.count, summary.rows, "{summary:?}");
    for kind in POOLS {
        let report = replay(&device, kind, &trace, config(Hosts::One)).unwrap();
        assert!(report.is_clean() && report.operations == 4, "{report:?}");
    }
    assert_eq!(device.memory_in_use(), (0, 0), "leaked blocks are freed");
}

#[test]
fn a_second_free_is_told_from_one_of_what_was_never_allocated() {
    let log = "\
        1,1,allocate,0x100,8,1,8\n\
        1,2,free,0x100,8,1,8\n\
        1,3,free,0x100,8,1,8\n\
        1,4,free,0x999,8,1,8\n\
        1,5,allocate,0x100,8,1,8\n\
        1,6,free,0x100,8,1,8\n\
        1,7,free,0x100,8,1,8\n";
    let summary = trace(log).summary().clone();
    let said: Vec<_> =
        summary.unmatched_frees.first.iter().map(|found| (found.line, found.what.as_str())).collect();
    let expected = [
        (4, "0x100 is freed, but is not live: it was freed in line 3"),
        (5, "0x999 is freed, but is not live: it was never allocated"),
        (8, "0x100 is freed, but is not live: it was freed in line 7"),
    ];
    assert_eq!((said, summary.frees), (expected.to_vec(), 2));
}

#[test]
fn failed_allocations_are_counted_and_their_frees_left_out() {
    for hosts in KINDS {
        let config = ReplayConfig { bytes: Some(400), hosts };
        let driver = PoolKind::find("driver").unwrap();
        let report = replay(&Device::cpu(), driver, &trace(LOG), config).unwrap();
        // The 300 B allocation fails; there is room for all others.
        assert_eq!((report.failed_allocations.count, report.frees_left_out, report.operations), (1, 1, 6));
        assert!(
            report.failed_allocations.first.as_ref().is_some_and(|first| first.contains("300 B")),
            "{report:?}"
        );
        assert!(report.is_clean() && report.peak_live_bytes == 300, "{report:?}");
    }
}

#[test]
fn a_pool_that_cannot_be_made_says_why() {
    let config = ReplayConfig { bytes: Some(10), hosts: Hosts::One };
    let blocks = PoolKind::find("blocks").unwrap();
    let report = replay(&Device::cpu(), blocks, &trace(LOG), config).unwrap();
    assert!(!report.is_clean() && report.error.is_some_and(|error| error.contains("blocks = 0")));
}

#[test]
fn frees_that_a_pool_does_not_take_make_it_faulty() {
    let (trace, device) = (trace(LOG), Device::cpu());
    // The fourth call is the first free. Its block is freed at the end.
    let pool = FailureInjected::new(SyncDriverAllocator::new(&device), Failures::Nth(4));
    let played = play(&trace.script, &pool, Hosts::One).unwrap();
    assert_eq!((played.failed_frees.count, played.used_at_end, played.free_nanos.len()), (1, 0, 3));
    let report = report(&POOLS[0], played);
    assert!(!report.is_clean());
}

/// The defect that a request of 300 B triggers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Defect {
    Panics,
    Fails,
}

struct Defective(SyncDriverAllocator, Defect);

// SAFETY: forwards to the upstream, which upholds the contract of `DeviceAllocator`.
unsafe impl DeviceAllocator for Defective {
    fn device(&self) -> &Device {
        self.0.device()
    }

    fn allocate(&self, layout: Layout, stream: &Stream) -> Result<DevicePtr<u8>> {
        match self.1 {
            _ if layout.size() != 300 => self.0.allocate(layout, stream),
            Defect::Panics => panic!("a defect of the pool"),
            Defect::Fails => self.0.allocate(layout, &Device::cpu().stream()?),
        }
    }

    unsafe fn deallocate(&self, ptr: DevicePtr<u8>, layout: Layout, stream: &Stream) -> Result<()> {
        // SAFETY: the caller upholds the contract of `deallocate`, which is passed on.
        unsafe { self.0.deallocate(ptr, layout, stream) }
    }

    fn usage(&self) -> Usage {
        self.0.usage()
    }
}

#[test]
fn a_panic_of_the_pool_does_not_hang_the_other_threads() {
    let pool = Defective(SyncDriverAllocator::new(&Device::cpu()), Defect::Panics);
    let script = trace(LOG).script;
    let play = || play(&script, &pool, Hosts::AsLogged).map(drop);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(play)).is_err());
}

#[test]
fn a_thread_that_cannot_be_started_ends_a_replay() {
    let pool = SyncDriverAllocator::new(&Device::cpu());
    let script = trace(LOG).script;
    assert!(script.threads > 1);
    for started in 0..script.threads {
        planted::allow(started);
        let error = play(&script, &pool, Hosts::AsLogged).unwrap_err();
        assert!(matches!(error, Error::NoThread { .. }), "{error}");
        assert_eq!(pool.usage().used_bytes, 0, "nothing is left");
    }
    planted::allow(script.threads);
    assert_eq!(play(&script, &pool, Hosts::AsLogged).unwrap().used_at_end, 0);
}

#[test]
fn more_threads_than_there_can_be_are_rejected() {
    let mut trace = trace(LOG);
    trace.script.threads = 1025;
    let error = replay(&Device::cpu(), &POOLS[0], &trace, config(Hosts::AsLogged)).unwrap_err();
    assert!(error.to_string().contains("threads = 1025: it must be at most 1024"), "{error}");
}

#[test]
fn an_error_that_is_no_refusal_ends_a_replay_on_all_threads() {
    for hosts in KINDS {
        let pool = Defective(SyncDriverAllocator::new(&Device::cpu()), Defect::Fails);
        let error = play(&trace(LOG).script, &pool, hosts).unwrap_err();
        assert!(matches!(error, Error::WrongDevice { .. }), "{error}");
    }
}

#[test]
fn a_log_can_be_replayed() {
    let device = Device::cpu();
    let logged = Logged::new(SyncDriverAllocator::new(&device), Vec::new());
    thread::scope(|scope| {
        for i in 0..4_usize {
            let (logged, device) = (&logged, &device);
            scope.spawn(move || {
                let stream = device.stream().unwrap();
                for size in (1..200).map(|n| n * (i + 1)) {
                    let layout = Layout::from_size_align(size, 8).unwrap();
                    let ptr = logged.allocate(layout, &stream).unwrap();
                    // SAFETY: allocated above, and never used.
                    unsafe { logged.deallocate(ptr, layout, &stream) }.unwrap();
                }
            });
        }
    });
    let (_, log) = logged.into_parts().unwrap();
    let trace = Trace::read(&log[..]).unwrap();
    let summary = trace.summary();
    assert_eq!((summary.allocations, summary.frees, summary.threads), (796, 796, 4));
    assert_eq!((summary.leaks.count, summary.unmatched_frees.count), (0, 0));
    for hosts in KINDS {
        let report = replay(&device, &POOLS[0], &trace, config(hosts)).unwrap();
        assert!(report.is_clean() && report.operations == 2 * 796, "{report:?}");
    }
}

#[test]
fn a_log_of_nothing_cannot_be_replayed() {
    for log in ["", NAMES, &format!("{NAMES}1,1,free,0x1,1,1,1\n")] {
        let error = Trace::read(log.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("nothing is allocated in its"), "{error}");
    }
}

#[test]
fn a_spread_is_counted_off() {
    let all = Spread::of((1..=200).rev().map(f64::from).collect());
    assert_eq!(all, Spread { median: 100.5, p99: 198.0, max: 200.0, min: 1.0 });
    assert_eq!(Spread::of(vec![7.0]), Spread { median: 7.0, p99: 7.0, max: 7.0, min: 7.0 });
    assert_eq!(Spread::of(Vec::new()), Spread::default());
}
