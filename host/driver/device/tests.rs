use super::*;
use crate::driver::backend::{EventBackend, StreamWatcher};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

/// An address that no device has allocated.
const NOWHERE: Range = Range { address: 64, bytes: 8 };

/// Searches the list of devices at the end of its stream, as a subscriber to the log of a drop may.
struct Searches(Device, Sender<()>);

impl StreamWatcher for Searches {
    fn ended(&self, _last: &dyn Fn() -> Result<Arc<dyn EventBackend>>) {
        self.0.explain_foreign(NOWHERE);
        self.1.send(()).unwrap();
    }
}

/// The search keeps a handle of each device. It is stopped at the registry of `slow` until its
/// handle of `last` is the only one.
#[test]
fn a_device_may_be_searched_for_while_its_last_handle_is_dropped() {
    let [slow, last, other] = [(); 3].map(|()| Device::cpu());
    let (sender, searched) = channel();
    let watcher: Arc<dyn StreamWatcher> = Arc::new(Searches(other.clone(), sender));
    last.default_queue().unwrap().watch(Arc::downgrade(&watcher));
    let mut last = Some(last);
    let submission = slow.registry().submit(|_| {
        let last = last.take().unwrap();
        let other = other.clone();
        let searching = thread::spawn(move || other.explain_foreign(NOWHERE));
        while Arc::strong_count(&last.inner) < 2 {
            assert!(!searching.is_finished(), "the search passed the registry of `slow`");
            thread::yield_now();
        }
        Ok::<_, Error>(())
    });
    drop(submission);
    searched.recv_timeout(Duration::from_secs(60)).expect("the second search ends");
}
