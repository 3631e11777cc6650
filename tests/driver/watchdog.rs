//! The watchdog ends a process that hangs, and no other.

use std::process::{Command, Output};
use std::time::{Duration, Instant};
use warpheap::Watchdog;

/// Environment variable that selects the part of the child.
const PART: &str = "WARPHEAP_TEST_WATCHDOG";

/// Runs `child` below in a separate process.
fn play(part: &str) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let command = command.args(["--exact", "watchdog::child", "--nocapture"]);
    command.env(PART, part).output().unwrap()
}

#[test]
fn child() {
    match std::env::var(PART).as_deref() {
        Ok("hang") => {
            let limit = Duration::from_secs(1);
            let _watchdog = Watchdog::start(limit, "the planted kernel", "Plant another.", 42);
            std::thread::sleep(Duration::from_secs(600));
        }
        Ok("disarm") => {
            let limit = Duration::from_secs(3);
            Watchdog::start(limit, "the planted kernel", "", 42).disarm();
            std::thread::sleep(limit + Duration::from_secs(1));
        }
        _ => {}
    }
}

#[test]
fn a_hang_ends_the_process_with_a_message() {
    let start = Instant::now();
    let output = play("hang");
    assert_eq!(output.status.code(), Some(42));
    assert!(start.elapsed() < Duration::from_secs(300), "it was requested to end after a second");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("the planted kernel did not end within 1s"), "{message}");
    assert!(message.contains("status 42.\nPlant another.\n"), "{message}");
}

#[test]
fn work_that_ends_in_time_goes_on() {
    let output = play("disarm");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!String::from_utf8_lossy(&output.stderr).contains("planted"));
}
