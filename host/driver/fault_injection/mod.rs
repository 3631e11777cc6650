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

mod clocks;
mod device;
mod faults;
mod late;

pub(crate) use clocks::Moment;
pub(crate) use device::{faulty_device, faulty_stream, late_device};
pub(crate) use faults::{
    Call, Faults, Run, Which, all_calls_fail_for_a_while, all_calls_fail_for_good, each_call_fails_once,
    is_injected,
};
pub(crate) use late::{LateStreams, gate};
