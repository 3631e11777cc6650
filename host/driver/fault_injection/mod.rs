//! Fault injection: a device or a single stream whose driver calls are counted, traced, and fail on
//! request.
//!
//! ```text
//!   FaultyDevice ─┬─ FaultyStream ─ FaultyEvent
//!                 ├─ FaultyPool               each call ─► Faults: count, hook, fail? ─► CPU call
//!                 └─ FaultyVirtualMemory                   or, of a stream, LateStream
//! ```
//!
//! [`Faults`] also tracks resources that were not freed (`held`), and the order of work between
//! streams (`clocks`). A call that fails has no effect. `drain`, which cannot fail, is not counted.

mod calls;
mod clocks;
mod device;
mod each_call;
mod faults;
mod gate;
mod late;
mod memory;
mod stream;

pub(crate) use calls::Call;
pub(crate) use clocks::Moment;
pub(crate) use device::{faulty_device, late_device};
pub(crate) use each_call::{
    Run, all_calls_fail_for_a_while, all_calls_fail_for_good, each_call_fails_once, is_injected,
};
pub(crate) use faults::{Faults, Which};
pub(crate) use gate::gate;
pub(crate) use late::LateStreams;
pub(crate) use stream::faulty_stream;
