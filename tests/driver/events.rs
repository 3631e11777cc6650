//! Events: points in a stream, and the time between two of them.

use crate::held::Held;
use crate::kernels::linger;
use crate::support::{devices, launch, module};
use std::time::{Duration, Instant};
use warpheap::Error;
use warpheap::error::InvalidRequest;

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
