//! How the ordering tags of shared memory change.

use super::super::order_tag::{Key, OrderTag};
use super::Shared;
use crate::driver::{Device, Event, Stream};
use crate::error::Result;

impl Shared {
    fn has(&self, order: OrderTag) -> bool {
        self.arena.has(order) || self.slabs.has(order)
    }

    /// Changes the order of all free memory of `from` to `to`.
    fn retag(&mut self, from: OrderTag, to: OrderTag) {
        self.arena.retag(from, to);
        self.slabs.retag(from, to);
    }

    /// Moves free memory that was behind an event, or unmarked, to another order.
    fn move_order(&mut self, from: OrderTag, to: OrderTag) {
        self.retag(from, to);
        self.orders.clear(from);
    }

    /// Puts free memory of the stream's order behind an event, so that other streams can tell when
    /// they may use it.
    pub fn fence(&mut self, key: Key, device: &Device) {
        let Some(own) = self.orders.of_key(key).filter(|own| self.has(*own)) else { return };
        if let Some(order) = self.orders.mark(key, device) {
            self.retag(own, order);
        }
    }

    /// Forgets a stream. Its order must have been fenced.
    pub fn forget(&mut self, key: Key) {
        self.orders.forget(key);
    }

    /// Returns memory that this stream freed, and that was put behind events for other streams, to
    /// the stream's own order.
    pub fn reclaim(&mut self, key: Key, own: OrderTag) {
        self.orders.behind(key).into_iter().for_each(|order| self.move_order(order, own));
    }

    /// The orders without a known point in a stream. Called after all streams were fenced, it
    /// includes the orders of streams that are about to end.
    pub fn unmarked(&self) -> Vec<OrderTag> {
        let ending = self.orders.of_streams().filter(|order| self.has(*order));
        self.orders.unmarked().chain(ending).collect()
    }

    /// Marks free memory of that order idle.
    pub fn mark_idle(&mut self, order: OrderTag) {
        self.move_order(order, OrderTag::IDLE);
    }

    /// Polls the events of up to `max_busy` unfinished streams. Memory behind completed events
    /// becomes idle.
    pub fn poll(&mut self, max_busy: usize) {
        self.orders.completed(max_busy).into_iter().for_each(|order| self.mark_idle(order));
    }

    /// The orders behind events, oldest first.
    pub fn pending(&self) -> Vec<(OrderTag, Event)> {
        self.orders.pending()
    }

    /// Makes `stream` wait for all events. The memory behind them moves to the stream's order.
    pub fn follow_all(&mut self, stream: &Stream, own: OrderTag) -> Result<()> {
        for (order, event) in self.pending() {
            if self.has(order) {
                stream.wait(&event)?;
            }
            self.move_order(order, own);
        }
        Ok(())
    }
}
