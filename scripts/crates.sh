#!/usr/bin/env bash
# Runs crates from crates.io in kernels: on the CPU, and on a GPU if there is one.
# usage: scripts/crates.sh [--all] [OPTION]... [CRATE]...
#        scripts/crates.sh --page    writes docs/guide/crates.md from results/crates.json
# Without --all: the crates that are compiled quickly. Options are those of the program: --json FILE,
# --limit SECONDS, --list.
set -euo pipefail
cd "$(dirname "$0")/.."

run=(cargo run --quiet --locked --manifest-path tests/crates/Cargo.toml)
case "${1:-}" in
    --page)
        # Without kernels: they are not needed here.
        page=$(DOCS_RS=1 "${run[@]}" -- --page results/crates.json)
        printf '%s\n' "$page" >docs/guide/crates.md
        ;;
    --all) "${run[@]}" --features all -- "${@:2}" ;;
    *) "${run[@]}" -- "$@" ;;
esac
