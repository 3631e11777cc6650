//! Streams: work runs in order within one stream, and independently across several. Events: points
//! in a stream, and the time between two of them.

use crate::held::Held;
use crate::kernels::{append, double, fail, linger, raise};
use crate::support::{devices, launch, module};
use std::time::{Duration, Instant};
use warpheap::error::InvalidRequest;
use warpheap::simt::Mode;
use warpheap::{Device, Error};

#[test]
fn kernels_of_one_stream_run_in_order() {
    for device in devices() {
        let (module, stream) = (module(&device), device.stream().unwrap());
        let values = device.from_slice(&[0_u32]).unwrap();
        for digit in 1..=9 {
            launch(&stream, &module, append, 1, (values.slice(), digit)).unwrap();
        }
        stream.synchronize().unwrap();
        assert_eq!(values.copy_to_vec().unwrap(), [123_456_789]);
    }
}

/// The kernel that releases the first stream runs on another one at the same time.
#[test]
fn a_launch_does_not_wait_and_synchronize_does() {
    for device in devices() {
        let (module, stream) = (module(&device), device.stream().unwrap());
        let held = Held::new(&module, &stream);
        assert!(!stream.is_done().unwrap(), "the kernel ended before its flag was raised");
        held.let_go();
        stream.synchronize().unwrap();
        assert!(stream.is_done().unwrap());
    }
}

#[test]
fn a_stream_waits_for_the_event_of_another() {
    for device in devices() {
        let module = module(&device);
        let (first, second) = (device.stream().unwrap(), device.stream().unwrap());
        for _ in 0..20 {
            let values = device.from_slice(&[0_u32]).unwrap();
            launch(&first, &module, linger, 1, (values.slice(), 2000)).unwrap();
            second.wait(&first.record().unwrap()).unwrap();
            launch(&second, &module, append, 1, (values.slice(), 7)).unwrap();
            second.synchronize().unwrap();
            assert_eq!(values.copy_to_vec().unwrap(), [17]);
        }
    }
}

/// CPU only: a CUDA context runs nothing after a kernel fault.
#[test]
fn a_failed_cpu_stream_still_waits_for_events() {
    let device = Device::cpu();
    let (module, values) = (module(&device), device.from_slice(&[0_u32]).unwrap());
    let (failing, other) = (device.stream().unwrap(), device.stream().unwrap());
    let held = Held::new(&module, &other);
    let before = other.record().unwrap();
    let not_yet = Held::new(&module, &failing);
    launch(&failing, &module, fail, 1, (values.slice(),)).unwrap();
    let failed = failing.record().unwrap();
    failing.wait(&before).unwrap();
    let behind = failing.record().unwrap();
    not_yet.let_go();
    failed.synchronize().unwrap();
    // Usually enough time for a missing wait to show. A correct wait never fails here.
    std::thread::sleep(Duration::from_millis(20));
    let early = behind.is_done().unwrap();
    held.let_go();
    assert!(!early, "the failed stream did not wait for the other stream's event");
    behind.synchronize().unwrap();
    assert!(before.is_done().unwrap());
    assert!(failing.synchronize().is_err());
}

#[test]
fn a_copy_of_a_buffer_waits_for_every_stream() {
    for device in devices() {
        let module = module(&device);
        let values = device.from_slice(&[0_u32]).unwrap();
        let stream = device.stream().unwrap();
        launch(&stream, &module, linger, 1, (values.slice(), 50_000)).unwrap();
        assert_eq!(values.copy_to_vec().unwrap(), [1]);
    }
}

#[test]
fn a_dropped_stream_still_does_its_work() {
    for device in devices() {
        let module = module(&device);
        let values = device.from_slice(&[3_u32; 1000]).unwrap();
        let stream = device.stream().unwrap();
        for _ in 0..4 {
            launch(&stream, &module, double, 1000, (values.slice(),)).unwrap();
        }
        drop(stream);
        assert_eq!(values.copy_to_vec().unwrap(), [48; 1000]);
    }
}

#[test]
fn streams_of_many_threads_do_not_disturb_each_other() {
    for device in devices() {
        let module = module(&device);
        std::thread::scope(|scope| {
            for number in 1..=4_u32 {
                let (device, module) = (&device, &module);
                scope.spawn(move || {
                    let stream = device.stream().unwrap();
                    let values = device.from_slice(&vec![number; 777]).unwrap();
                    for _ in 0..5 {
                        launch(&stream, module, double, 777, (values.slice(),)).unwrap();
                    }
                    stream.synchronize().unwrap();
                    assert_eq!(values.copy_to_vec().unwrap(), vec![number * 32; 777]);
                });
            }
        });
    }
}

#[test]
fn the_default_stream_is_one_and_the_same() {
    for device in devices() {
        let module = module(&device);
        let values = device.from_slice(&[0_u32]).unwrap();
        for digit in [4, 2] {
            let stream = device.default_stream().unwrap();
            launch(&stream, &module, append, 1, (values.slice(), digit)).unwrap();
        }
        device.synchronize().unwrap();
        assert_eq!(values.copy_to_vec().unwrap(), [42]);
    }
}

#[test]
fn clones_share_a_stream_id_that_is_never_reused() {
    for device in devices() {
        let (first, second) = (device.stream().unwrap(), device.stream().unwrap());
        assert_eq!(first.id(), first.clone().id());
        assert_ne!(first.id(), second.id());
        let gone = first.id();
        drop(first);
        let (third, default) = (device.stream().unwrap(), device.default_stream().unwrap());
        assert!([second.id(), third.id(), default.id()].iter().all(|id| *id != gone));
        assert_eq!(default.id(), device.default_stream().unwrap().id());
        assert!(third.id().to_string().parse::<u64>().is_ok());
    }
}

#[test]
fn a_replay_reports_its_steps_and_schedule() {
    let run = |seed| {
        let device = Device::cpu_with(Mode::Replay { seed });
        let stream = device.stream().unwrap();
        assert_eq!(stream.cpu_stats(), None);
        let flag = device.from_slice(&[0_u32]).unwrap();
        let module = device.native_module().unwrap();
        launch(&stream, &module, raise, 64, (flag.slice(),)).unwrap();
        stream.synchronize().unwrap();
        stream.cpu_stats().unwrap()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).schedule_hash, run(2).schedule_hash);
    assert!(run(1).steps >= 64);
}

#[test]
fn the_time_between_two_events_is_that_of_the_kernel_between() {
    for device in devices() {
        let (module, stream) = (module(&device), device.stream().unwrap());
        let values = device.from_slice(&[0_u32]).unwrap();
        let wall = Instant::now();
        let start = stream.record().unwrap();
        launch(&stream, &module, linger, 1, (values.slice(), 30_000)).unwrap();
        let end = stream.record().unwrap();
        let elapsed = end.elapsed(&start).unwrap();
        assert!(elapsed >= Duration::from_millis(29), "{elapsed:?} on {device}");
        assert!(elapsed <= wall.elapsed() + Duration::from_millis(1), "{elapsed:?} on {device}");
        assert!(start.is_done().unwrap() && end.is_done().unwrap());
        assert_eq!(end.elapsed(&end).unwrap(), Duration::ZERO);
        let backwards = start.elapsed(&end).unwrap_err();
        assert!(matches!(backwards, Error::InvalidRequest(InvalidRequest::EventOrder)), "{backwards}");
    }
}

#[test]
fn an_event_of_an_idle_stream_completes_at_once() {
    for device in devices() {
        let stream = device.stream().unwrap();
        let event = stream.record().unwrap();
        event.synchronize().unwrap();
        stream.wait(&event).unwrap();
        stream.synchronize().unwrap();
    }
}

#[test]
fn an_event_comes_true_when_its_stream_gets_there() {
    for device in devices() {
        let (module, stream) = (module(&device), device.stream().unwrap());
        let held = Held::new(&module, &stream);
        let event = stream.record().unwrap();
        // Dropping the stream does not wait for its kernel, which still needs another stream.
        drop(stream);
        assert!(!event.is_done().unwrap(), "the kernel before it waits for its flag");
        held.let_go();
        event.synchronize().unwrap();
        assert!(event.is_done().unwrap());
    }
}
