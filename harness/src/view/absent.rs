//! In place of drawings in a program without the feature `view`, which rejects the options that
//! draw before it runs.

use crate::report::compare::Comparison;
use crate::report::results::Results;
use std::io::{self, Read, Write};
use warpheap::device_pools::HeapMap;
use warpheap_harness::pool_tools::timeline::Events;

/// A chart, of which there is none.
pub struct Card;

impl Card {
    pub fn picture(&self) -> String {
        String::new()
    }
}

pub fn charts(_: &Results) -> Vec<(String, Card)> {
    Vec::new()
}

pub fn page(_: &[Results], _: Option<&Comparison>) -> String {
    String::new()
}

pub fn picture_of_maps(_: &[HeapMap]) -> String {
    String::new()
}

pub fn check_times(_: &[HeapMap]) -> Result<(), String> {
    Ok(())
}

pub fn perfetto<R: Read>(_: &mut Events<R>, _: &mut dyn Write) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub fn pytorch<R: Read>(_: &mut Events<R>, _: &mut dyn Write) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub fn perfetto_of_maps(_: &[HeapMap], _: &mut dyn Write) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
