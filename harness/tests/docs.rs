//! The guide names only options that exist, every exit status of `stress`, and every pool and
//! figure of `warpheap pool`.

#[path = "../../tests/repository/pages.rs"]
mod pages;

use pages::{page, words};

#[test]
fn options_in_the_guide_exist_and_exit_statuses_are_listed() {
    let help = |command: &str| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_warpheap"))
            .args(command.split(' ').chain(["--help"]))
            .output()
            .expect("the program starts");
        String::from_utf8(output.stdout).expect("text")
    };
    let options = help("stress") + &help("bench") + &help("doctor") + &help("examples");
    let options =
        options + &help("pool replay") + &help("pool bench") + &help("pool demo") + &help("pool show");
    let names = ["stress", "results", "replay", "global-allocator", "heap", "host-pools", "pool-command"];
    for name in names.map(|name| format!("guide/{name}.md")) {
        let page = page(&name);
        for option in words(&page, "--") {
            assert!(options.contains(option), "{name} names {option}, which does not exist");
        }
    }
    let guide = page("guide/stress.md");
    for line in help("stress").lines().skip_while(|line| *line != "Exit status:").skip(1) {
        let status = line.split_whitespace().next().unwrap_or_default();
        assert!(guide.contains(&format!("| {status} |")), "status {status} is not in the guide");
    }
}

#[test]
fn the_guide_to_the_pool_command_has_every_pool_and_figure() {
    use warpheap_harness::pool_tools::{POOLS, bench};
    let page = page("guide/pool-command.md");
    for name in POOLS.iter().map(|kind| kind.name.to_owned()).chain(bench::names()) {
        assert!(page.contains(&format!("`{name}`")), "{name} is not explained");
    }
}
