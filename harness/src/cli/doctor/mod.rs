//! `warpheap doctor`: reports what is installed, what works, and how to fix the rest.
//!
//! `findings` collects the findings, with a kernel that runs on every backend (`selftest`); `text`
//! prints them.

mod findings;
mod selftest;
mod text;

use super::args::DoctorArgs;
use super::console::Console;
use super::results::write_results;
use super::status::{Failure, Status};

/// Examines everything. Fails only if no backend is usable.
pub fn run(args: DoctorArgs, console: &Console) -> Result<Status, Failure> {
    let findings = findings::examine();
    text::tell(&findings, console);
    write_results(args.json.as_ref(), "doctor", None, None, &findings, console)?;
    Ok(if findings.works() { Status::Clean } else { Status::NoDevice })
}
