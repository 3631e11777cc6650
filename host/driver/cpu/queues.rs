//! The queues of a device that may still have pending work or an unreported failure.

use super::queue::JobQueue;
use crate::error::Result;
use crate::lock::lock;
use std::sync::{Arc, Mutex};

#[derive(Default)]
pub(super) struct Queues {
    all: Mutex<Vec<Arc<JobQueue>>>,
}

impl Queues {
    pub fn push(&self, queue: Arc<JobQueue>) {
        lock(&self.all).push(queue);
    }

    /// The queues that are not over. Returns a copy, because callers wait for the queues and must
    /// not hold the lock.
    fn all(&self) -> Vec<Arc<JobQueue>> {
        let mut all = lock(&self.all);
        all.retain(|queue| !queue.is_over());
        all.clone()
    }

    /// Waits for all queues, even after a failure, and returns the first failure.
    pub fn settle(&self) -> Result<()> {
        self.all().iter().map(|queue| queue.settle()).fold(Ok(()), Result::and)
    }

    pub fn drain(&self) {
        self.all().iter().for_each(|queue| queue.drain());
    }
}
