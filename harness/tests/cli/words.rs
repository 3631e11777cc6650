//! Help, piped output, and rejected arguments.

use crate::support::{ends, err, out, rejects, status, stdout_and_stderr, stress, warpheap};

#[test]
fn without_arguments_it_prints_help() {
    let output = warpheap("");
    assert_eq!(status(&output), 2);
    assert!(err(&output).contains("Usage: warpheap [OPTIONS] <COMMAND>"), "{}", err(&output));
}

#[test]
fn help_has_examples_defaults_and_statuses() {
    let general = warpheap("--help");
    assert_eq!(status(&general), 0);
    for part in [
        "warpheap stress --plant overlap",
        "Exit status:",
        "4    a kernel hung",
        "doctor",
        "bench",
        "map",
        "pool",
        "report",
    ] {
        assert!(out(&general).contains(part), "no {part:?} in {}", out(&general));
    }
    let stress = out(&warpheap("stress --help"));
    let options: Vec<_> = stress.split("\n      --").skip(1).collect();
    assert!(options.len() >= 22, "{stress}");
    for text in options {
        let replaces_rounds = text.starts_with("seconds") || text.starts_with("pairs");
        assert!(text.contains("Default:") || replaces_rounds, "it has no default: {text}");
    }
    assert!(stress.contains("Examples:") && stress.contains("Exit status:"), "{stress}");
}

#[test]
fn piped_output_has_no_control_characters() {
    for output in [
        stress(""),
        stress("--plant overlap"),
        warpheap("doctor"),
        warpheap("--help"),
        warpheap("map --demo fragmented --backend cpu"),
    ] {
        let printed = stdout_and_stderr(&output);
        let control = printed.chars().find(|c| c.is_control() && *c != '\n');
        assert_eq!(control, None, "{printed:?}");
    }
}

#[test]
fn invalid_arguments_are_rejected_with_an_explanation() {
    for (line, part) in [
        ("stress --threads many", "2^20"),
        ("stress --threads 0", "whole number of 1 or more"),
        ("stress --size 16..64", "16-8192"),
        ("stress --size 64-16", "is above its end"),
        ("stress --pool 1KX", "1GiB"),
        ("stress --seed -1", "unexpected argument"),
        ("stress --seed one", "decimal or hexadecimal"),
        ("stress --seconds 0", "more than 0"),
        ("stress --rounds 0", "whole number of 1 or more"),
        ("stress --rounds 3 --seconds 3", "cannot be used with"),
        ("stress --rounds 3 --pairs 3", "cannot be used with"),
        ("stress --pairs 1.5", "whole number of 1 or more"),
        ("stress --backend rocm", "auto, cuda, cpu"),
        ("stress --allocator slab", "bump, freelist, heap, all"),
        ("stress --workload quiet", "churn, exchange, pipeline, storm"),
        ("stress --mix sour", "uniform, powers, mostly-small"),
        ("stress --backend cpu --allocator bump --workload storm", "use freelist or heap"),
        ("stress --backend cpu --workload pipeline --streams 1", "two streams"),
        ("stress --delays heap/clam", "--delays list"),
        ("stress --delays heap --delay-one-in 0", "whole number of 1 or more"),
        ("stress --delay-one-in 4", "--delays"),
        ("stress --plant fire", "overlap, double-free, lost-block, torn-write"),
        ("stress --replay --backend cuda", "cannot be replayed"),
        ("stress --backend cpu --device 1", "--device is for a GPU"),
        ("stress --replay --kernels sm_70", "--kernels is for a GPU"),
        ("stress --backend cpu --pool 900T", "a pool of"),
        ("stress --backend cpu --allocator bump --plant double-free", "use freelist or heap"),
        ("stress --backend cpu --threads 2^31 --streams 64", "fewer threads"),
        ("bench --figure speed", "--figure heap"),
        ("bench --rounds none", "whole number of 1 or more"),
        ("bench --suite slow", "quick, full, load"),
        ("bench --suite full --figure churn", "cannot be used with"),
        ("bench --suite full --backend cpu", "--suite quick"),
        ("bench --heap 1GiB", "--suite"),
        ("bench --suite load --heap some", "1GiB"),
        ("bench --suite load --heap 4KiB", "1 MiB to 128 GiB"),
        ("bench --suite quick --backend cpu --device 1", "--device is for a GPU"),
        ("bench --backend cpu", "--suite quick on the CPU"),
        ("pool replay", "--trace"),
        ("pool replay --trace x.csv --pool lake", "there are driver, "),
        ("pool replay --trace x.csv --threads many", "one, logged"),
        ("pool bench --pool lake", "there are driver, "),
        ("pool bench --figure speed", "pair of 1 MiB"),
        ("pool bench --backend cpu --device 1", "--device is for a GPU"),
        ("pool bench --backend cpu --cap 1MiB", "a single random allocation"),
        ("pool show --backend cpu --device 1", "--device is for a GPU"),
        ("pool show --bytes some", "1GiB"),
        ("pool show --backend cpu --bytes 900T", "cannot allocate"),
        ("map", "<FILE>"),
        ("map x.json --demo full", "cannot be used with"),
        ("map --demo lake", "fresh, mixed, fragmented, full, timeline, leak"),
        ("map --demo fresh --width 3", "from 40 to 1000"),
        ("map --demo fresh --color blue", "auto, always, never"),
        ("map --demo fresh --backend cpu --device 1", "--device is for a GPU"),
        ("map --demo fresh --backend cpu --bytes 1", "1.0 MiB"),
        ("map --demo fresh --svg - --json -", "have the same target"),
        ("map --demo fresh --svg no/such/folder/x.svg", "create it first"),
        ("map no-such-file.json", "cannot draw no-such-file.json: "),
        ("map x.json --bytes 1MiB", "cannot be used with"),
        ("stress --backend cpu --allocator bump --map x.json", "use --allocator heap"),
        ("stress --map no/such/folder/x.json", "create it first"),
        ("stress --map= --allocator heap", "a file name is needed"),
        ("stress --html=", "a file name is needed"),
        ("pool replay --trace=", "a file name is needed"),
        ("stress --html - --json -", "have the same target"),
        ("stress --device abc", "by its number: 0, 1; `warpheap doctor`"),
        ("map --demo fresh --device -1", "unexpected argument"),
        ("map --demo fresh --device 4294967296", "by its number: 0, 1; `warpheap doctor`"),
        ("pool show --device GPU0", "by its number: 0, 1; `warpheap doctor`"),
        ("stress --html no/such/folder/x.html", "create it first"),
        ("stress --html x.html --json x.html", "have the same target"),
        ("bench --against no-such-file.json", "cannot read no-such-file.json: "),
        ("bench --threshold 5%", "--against"),
        ("pool bench --against x.json --threshold much", "a threshold is a percentage"),
        ("report", "<RESULTS>"),
        ("report x.json", "--html"),
        ("report no-such-file.json --html x.html", "cannot read no-such-file.json: "),
        ("fly", "unrecognized subcommand"),
    ] {
        let output = rejects(line, part);
        assert_eq!(out(&output), "", "{line} printed to stdout");
    }
}

#[test]
fn points_for_delays_are_listed() {
    let output = ends(0, "stress --delays list");
    for part in ["bump: bump/lend", "freelist/credit", "heap/store-entry", "scans/end"] {
        assert!(out(&output).contains(part), "no {part:?} in {}", out(&output));
    }
}

#[cfg(not(feature = "delays"))]
#[test]
fn a_program_without_delays_rejects_them() {
    for line in ["stress --backend cpu --delays all", "stress --replay --delays heap/claim,scans"] {
        rejects(line, "with the feature `delays`");
    }
}
