//! Time and memory of the export of a long log. To print them for 10 million rows:
//!
//!     WARPHEAP_EXPORT_ROWS=10000000 cargo test --release --locked -p warpheap-harness \
//!         --features cli --test cli exports::long -- --nocapture

use super::Files;
use crate::support::{status, stdout_and_stderr};
use std::fs;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Blocks that are live at a time.
const LIVE: u64 = 10_000;
const THREADS: u64 = 16;

/// Writes a log of 16 threads with a stream each, with at most 10,000 live blocks and rows in
/// disorder. Returns the number of rows: `most` without the frees before the first one.
fn long_log(path: &Path, most: u64) -> u64 {
    let mut file = BufWriter::new(fs::File::create(path).expect("it can be written"));
    writeln!(file, "thread,time,action,pointer,size,stream,align,tag").expect("written");
    // Step `2 n` allocates block `n`, and step `2 n + FREED` frees it.
    const FREED: u64 = 2 * LIVE - 1;
    let steps = (0..most).filter(|step| step.is_multiple_of(2) || *step >= FREED);
    let row = |step: u64| {
        let is_alloc = step.is_multiple_of(2);
        let (block, action) = if is_alloc { (step / 2, "allocate") } else { ((step - FREED) / 2, "free") };
        // More addresses than live blocks: an address is free for a while before it is used again.
        let (time, address) = (100 * (step ^ 5), 0x7f00_0000_0000 + (block % (LIVE + LIVE / 10)) * (1 << 20));
        let (thread, bytes, stream, tag) =
            (step / 2 % THREADS, 256 << (block % 13), 1 + block % THREADS, block % 40);
        let tag = if is_alloc { format!("\"layer {tag}\"") } else { String::new() };
        writeln!(file, "{thread},{time},{action},{address:#x},{bytes},{stream},256,{tag}").expect("written");
    };
    steps.map(row).count() as u64
}

/// Exports with an address space of 256 MiB. `WARPHEAP_EXPORT_ROWS` sets the rows. The target of a
/// release build is 10 million in 60 s.
#[test]
fn a_long_log_is_exported_in_bounded_memory() {
    const TARGET: (u64, f64) = (10_000_000, 60.0);
    let most =
        std::env::var("WARPHEAP_EXPORT_ROWS").map_or(Ok(100_000), |rows| rows.parse()).expect("a number");
    let files = Files::new("");
    let (rows, to) = (long_log(&files.log, most), files.folder.path().join("export"));
    let megabytes = |path: &Path| fs::metadata(path).expect("a file").len() as f64 / 1e6;
    eprintln!("log: {rows} rows, {THREADS} threads and streams, {:.0} MB", megabytes(&files.log));
    for format in ["perfetto", "pytorch"] {
        let start = Instant::now();
        let child = Command::new("sh")
            .args(["-c", "ulimit -v 262144 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_warpheap")])
            .args(["pool", "export", "--format", format, "--trace"])
            .arg(&files.log)
            .arg("--out")
            .arg(&to)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let (output, kibibytes) = peak(child);
        let (seconds, said) = (start.elapsed().as_secs_f64(), stdout_and_stderr(&output));
        assert_eq!(status(&output), 0, "{format}: {said}");
        let (mebibytes, megabytes) = (kibibytes as f64 / 1024.0, megabytes(&to));
        eprintln!("{format}: {seconds:.1} s, at most {mebibytes:.1} MiB resident, {megabytes:.0} MB written");
        assert!(most < TARGET.0 || seconds < TARGET.1, "{seconds:.1} s");
        // The window, and the rows of one clock tick.
        let line = said.lines().find(|line| line.starts_with("  memory")).expect("a line").replace(',', "");
        let held: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        assert!(held[0] <= (1 << 14) + 8 && (LIVE - 10..LIVE + 10).contains(&held[1]), "{said}");
        assert!(said.replace(',', "").contains(&format!("  written  {rows} events")), "{said}");
    }
}

/// Waits for a program with little output. Returns the output and the largest resident memory in
/// KiB, as the kernel counts it, last read at most 1 ms before the end.
fn peak(mut child: Child) -> (Output, u64) {
    let (status, mut most) = (format!("/proc/{}/status", child.id()), 0);
    while child.try_wait().expect("it can be waited for").is_none() {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let now = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        most = most.max(now.unwrap_or(0));
        sleep(Duration::from_millis(1));
    }
    assert!(most > 0, "no memory in {status}");
    (child.wait_with_output().expect("its output"), most)
}
