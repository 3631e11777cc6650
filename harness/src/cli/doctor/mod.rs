//! `warpheap doctor`: what there is, what works, and what to do about the rest.
//!
//! `examine` finds out, with a kernel that really runs on every backend (`selftest`); `tell` says it.

mod examine;
mod selftest;
mod tell;

use super::args::DoctorArgs;
use super::console::Console;
use super::status::{Failure, Status};
use super::stress::{check_target, write_results};
use crate::report::provenance::ResultFile;

/// Looks at everything. No usable backend is the only failure.
pub fn run(args: DoctorArgs, console: &Console) -> Result<Status, Failure> {
    check_target(args.json.as_ref())?;
    let findings = examine::examine();
    tell::tell(&findings, console);
    if let Some(target) = &args.json {
        write_results(target, &ResultFile::new("doctor", None, None, &findings), console)?;
    }
    Ok(if findings.works() { Status::Clean } else { Status::NoDevice })
}
