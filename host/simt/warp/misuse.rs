//! Errors for incorrect calls of collectives.

use super::{Wait, Warp};
use crate::simt::error::{Call, SimtError};
use crate::simt::machine::Exchange;
use crate::simt::rendezvous::Clash;
use warpheap_device::units::LaneMask;

impl Warp {
    fn call(&self, lane: u32) -> Option<Call> {
        match self.seats[lane as usize].wait {
            Wait::Collective(what, mask, at) => {
                Some(Call { thread: self.place.thread(lane), what, mask, at })
            }
            _ => None,
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn bad_mask(&self, lane: u32, call: Exchange) -> SimtError {
        let absent = LaneMask(call.mask.0 & !self.alive);
        let exist = u32::MAX >> (u32::BITS - self.seats.len() as u32);
        let (lanes, why) = if !call.mask.contains(lane) {
            (LaneMask::only(lane), "the caller is not in its mask")
        } else if absent.0 & !exist != 0 {
            (absent, "the mask names lanes that the warp does not have")
        } else {
            (absent, "the mask names lanes that have ended")
        };
        let call = Call { thread: self.place.thread(lane), what: call.what, mask: call.mask, at: call.at };
        SimtError::Mask { call: Box::new(call), lanes, why }
    }

    #[cold]
    pub(super) fn waits_for_ended(&self, waiting: u32, ended: u32) -> SimtError {
        let call = self.call(waiting).expect("I2: a lane in an open slot waits for a collective");
        let why = "a lane of the mask has ended meanwhile";
        SimtError::Mask { call: Box::new(call), lanes: LaneMask::only(ended), why }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn mismatch(&self, lane: u32, clash: Clash) -> SimtError {
        let call = |lane| Box::new(self.call(lane).expect("I2: both lanes wait for a collective"));
        SimtError::Mismatch { first: call(clash.with), second: call(lane) }
    }
}
