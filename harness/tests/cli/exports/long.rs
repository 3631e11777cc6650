//! Time and memory of the export of a long log.

use super::Files;
use crate::support::{status, stdout_and_stderr};
use std::fs;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Writes a log by 16 threads, with at most 1000 live blocks and rows in disorder. Returns the
/// number of rows, almost `most`.
fn long_log(path: &Path, most: u64) -> u64 {
    let mut file = BufWriter::new(fs::File::create(path).expect("it can be written"));
    writeln!(file, "thread,time,action,pointer,size,stream,align,tag").expect("written");
    // Step `2 n` allocates block `n`, and step `2 n + 1999` frees it.
    let steps = (0..most).filter(|step| step.is_multiple_of(2) || *step >= 1999);
    let row = |step: u64| {
        let (block, action) =
            if step.is_multiple_of(2) { (step / 2, "allocate") } else { (step / 2 - 999, "free") };
        let (time, address) = (100 * (step ^ 5), 0x7f00_0000_0000 + (block % 1100) * (1 << 20));
        let (thread, bytes, stream, tag) = (step % 16, 256 << (block % 13), 1 + block % 8, block % 40);
        writeln!(file, "{thread},{time},{action},{address:#x},{bytes},{stream},256,layer {tag}")
            .expect("written");
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
    let rows = long_log(&files.log, most);
    for format in ["perfetto", "pytorch"] {
        let start = Instant::now();
        let output = Command::new("sh")
            .args(["-c", "ulimit -v 262144 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_warpheap")])
            .args(["pool", "export", "--format", format, "--trace"])
            .arg(&files.log)
            .arg("--out")
            .arg(files.folder.path().join("export"))
            .output()
            .expect("it starts");
        let (seconds, said) = (start.elapsed().as_secs_f64(), stdout_and_stderr(&output));
        assert_eq!(status(&output), 0, "{format}: {said}");
        eprintln!("{format}: {rows} rows in {seconds:.1} s");
        assert!(most < TARGET.0 || seconds < TARGET.1, "{seconds:.1} s");
        // The window, and the rows of one clock tick.
        let line = said.lines().find(|line| line.starts_with("  memory")).expect("a line").replace(',', "");
        let held: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        assert!(held[0] <= (1 << 14) + 8 && (990..1010).contains(&held[1]), "{said}");
        assert!(said.replace(',', "").contains(&format!("  written  {rows} events")), "{said}");
    }
}
