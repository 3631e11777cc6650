#!/usr/bin/env bash
# Sets up and runs the whole test suite. `--quick` leaves out clippy and the model checker.
set -euo pipefail
cd "$(dirname "$0")/.."

quick=
case "${1:-}" in
    --quick) quick=yes ;;
    '') ;;
    *)
        echo "usage: scripts/test.sh [--quick]" >&2
        exit 2
        ;;
esac

step() { printf '\n== %s (%d s so far)\n' "$*" "$SECONDS"; }

step set up
scripts/setup.sh

skipped=
if [ -d "$(/usr/bin/rustc --print sysroot 2>/dev/null)/lib/rustlib/src/rust/library" ]; then
    export WARPHEAP_REQUIRE_COMPILER=1
elif [ -z "${WARPHEAP_REQUIRE_COMPILER:-}" ]; then
    skipped="; no compiler for kernels at its usual place: tests of the PTX may have been left out"
fi
if [ -z "${WARPHEAP_PTXAS:-}" ] && ! command -v ptxas >/dev/null; then
    skipped="$skipped; no ptxas: registers were not looked at"
fi

step format
cargo fmt --all --check

if [ -z "$quick" ]; then
    step lints
    # Without GPU kernels, as for documentation: lints do not need them.
    DOCS_RS=1 cargo clippy --workspace --all-targets --all-features --locked -- -D warnings
fi

step the libraries without default features, and with each feature alone
for build in warpheap-device: warpheap-device:{rustacuda,cust,bytemuck,debug} warpheap: warpheap:{debug,csv} warpheap-harness:; do
    DOCS_RS=1 cargo check --package "${build%:*}" --no-default-features --features "${build#*:}" --locked
done

if [ -z "$quick" ]; then
    # The model checker runs in parallel with the tests, which leave a core idle at times. It has a
    # separate target folder: otherwise the flag would cause a full rebuild, here and in the next
    # build.
    loom_log=$(mktemp)
    RUSTFLAGS='--cfg loom' CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom" \
        cargo test -p warpheap-device --features loom --release --locked --test 'loom*' >"$loom_log" 2>&1 &
    loom=$!
    trap 'kill "$loom" 2>/dev/null || true; rm -f "$loom_log"' EXIT
fi

step tests, with all features but debug
# `debug` changes the program's kernels: the register checks need the kernels without it.
cargo test --workspace --features cli,rustacuda,cust,bytemuck --locked

step the example of the README, which the tests have built
"${CARGO_TARGET_DIR:-target}/debug/examples/hello"

step debug heaps, and other heaps in a build that has them
cargo test --locked --features debug --test device_pools --test heap_groups

if [ -z "$quick" ]; then
    step model checker
    checked=0
    wait "$loom" || checked=$?
    cat "$loom_log"
    [ "$checked" -eq 0 ] || exit "$checked"
fi

step documentation
DOCS_RS=1 RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --all-features --locked

step "all tests passed${quick:+ (quick: without clippy and the model checker)}$skipped"
