#!/usr/bin/env bash
# Runs the tests of Rust's alloc library in kernels: on the CPU, and on a GPU if there is one.
# usage: scripts/alloc-tests.sh [OPTION]... [NAME]...
#        scripts/alloc-tests.sh --test            format, clippy, unit tests; all tests on the CPU
#        scripts/alloc-tests.sh --bundle FOLDER   the program for a machine with a GPU
# Options are those of the program: --cpu, --gpu, --json FILE, --jobs N, --limit SECONDS, --list.
#
# The compiler for kernels builds the program, too: the tests use unstable features of its `alloc`.
# It must come with the sources of the tests: WARPHEAP_RUSTC names it.
set -euo pipefail
cd "$(dirname "$0")/.."

export RUSTC=${WARPHEAP_RUSTC:-/usr/bin/rustc} RUSTC_BOOTSTRAP=1
export WARPHEAP_RUSTC=$RUSTC
release=1.96
case $("$RUSTC" --version || true) in
    "rustc $release."*) ;;
    *) echo "$RUSTC is not rustc $release, for which this suite is written: name one in WARPHEAP_RUSTC" >&2; exit 2 ;;
esac
if [ ! -d "$("$RUSTC" --print sysroot)/lib/rustlib/src/rust/library/alloctests" ]; then
    echo "$RUSTC does not come with the tests of alloc: name a compiler that does in WARPHEAP_RUSTC" >&2
    exit 2
fi
target=${CARGO_TARGET_DIR:-target}/alloc
suite=(--locked --manifest-path tests/alloc/Cargo.toml --target-dir "$target")
# As many tests must pass on the CPU, at least.
floor=1343

case "${1:-}" in
    --test)
        cargo fmt --all --check --manifest-path tests/alloc/Cargo.toml
        # Clippy may belong to another compiler, which does not come with the tests.
        env -u RUSTC cargo clippy --quiet --locked --manifest-path tests/alloc/Cargo.toml \
            --target-dir "$target/clippy" --package warpheap-alloc-transform --package warpheap-alloc-std \
            --all-targets -- -D warnings
        # Without kernels for GPUs: they are not needed here.
        export DOCS_RS=1
        cargo test --quiet "${suite[@]}" --package warpheap-alloc-transform --package warpheap-alloc-tests
        cargo run --quiet "${suite[@]}" -- --cpu --floor "$floor"
        ;;
    --bundle)
        [ $# -eq 2 ] || { sed -n '2,6s/^# //p' "$0" >&2; exit 2; }
        cargo build --quiet --release "${suite[@]}"
        mkdir -p "$2"
        strip -o "$2/alloc-tests" "$target/release/warpheap-alloc-tests"
        xz -2 --force --threads=0 "$2/alloc-tests"
        echo "there: unxz alloc-tests.xz; chmod +x alloc-tests; ./alloc-tests --gpu --json alloc-tests.json"
        ;;
    # Without kernels for GPUs: they are not needed here.
    --list) DOCS_RS=1 cargo run --quiet "${suite[@]}" -- --list ;;
    *) cargo run --quiet "${suite[@]}" -- "$@" ;;
esac
