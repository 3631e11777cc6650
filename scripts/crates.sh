#!/usr/bin/env bash
# Runs crates from crates.io in kernels: on the CPU, and on a GPU if there is one.
# usage: scripts/crates.sh [--all] [OPTION]... [CRATE]...
#        scripts/crates.sh --test    format, clippy and tests of the suite, then the quick crates
#        scripts/crates.sh --page    writes docs/guide/crates.md from results/crates.json
# Without --all: the crates that are compiled quickly. Options are those of the program:
# --json FILE, --limit SECONDS, --list, --cubin. For the last one, set WARPHEAP_CRATES_CUBIN=sm_90.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}/crates
suite=(--locked --manifest-path tests/crates/Cargo.toml --target-dir "$target")
case "${1:-}" in
    --test)
        cargo fmt --all --check --manifest-path tests/crates/Cargo.toml
        # Without kernels: they are not needed here. All crates, on the host.
        DOCS_RS=1 cargo clippy --quiet "${suite[@]}" --workspace --all-targets --features all -- -D warnings
        DOCS_RS=1 cargo test --quiet "${suite[@]}" --features all
        cargo run --quiet "${suite[@]}" -- "${@:2}"
        ;;
    --page)
        page=$(DOCS_RS=1 cargo run --quiet "${suite[@]}" -- --page results/crates.json)
        printf '%s\n' "$page" >docs/guide/crates.md
        ;;
    --all) cargo run --quiet "${suite[@]}" --features all -- "${@:2}" ;;
    *) cargo run --quiet "${suite[@]}" -- "$@" ;;
esac
