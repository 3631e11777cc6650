#!/usr/bin/env bash
# Sets up and runs the whole test suite. `--quick` leaves out clippy and the model checker.
set -euo pipefail
cd "$(dirname "$0")/.."

quick=''
case "${1:-}" in
    --quick) quick=yes ;;
    '') ;;
    *)
        echo "usage: scripts/test.sh [--quick]" >&2
        exit 2
        ;;
esac

target=${CARGO_TARGET_DIR:-target}

# As in Cargo.toml: the projects that the tests build have profiles of their own.
export CARGO_PROFILE_DEV_DEBUG=false
# Incremental compilation takes two thirds of the target folder, and helps only the next change of a
# crate. `CARGO_INCREMENTAL=1` keeps it.
export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}

step() { printf '\n== %s (%d s so far)\n' "$*" "$SECONDS"; }

# The model checker runs beside the other steps, at the lowest priority.
models=$(mktemp) models_pid=''
trap 'kill $models_pid 2>/dev/null || true; rm -f "$models"' EXIT

step set up
scripts/setup.sh
# rustc and clippy of cargo's own toolchain, also if the PATH has a distribution's rustc before it.
PATH=$(dirname "$(command -v cargo)"):$PATH

skipped=
if [ -d "$(/usr/bin/rustc --print sysroot 2>/dev/null)/lib/rustlib/src/rust/library" ]; then
    export WARPHEAP_REQUIRE_COMPILER=1
elif [ -z "${WARPHEAP_REQUIRE_COMPILER:-}" ]; then
    skipped="; no compiler for kernels at its usual place: tests of the PTX may have been left out"
fi
if [ -z "${WARPHEAP_PTXAS:-}" ] && ! command -v ptxas >/dev/null; then
    skipped="$skipped; no ptxas: register checks were skipped"
fi

step format
cargo fmt --all --check

if [ -z "$quick" ]; then
    # The flag would cause a full rebuild in the common target folder.
    RUSTFLAGS='--cfg loom' CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
        CARGO_PROFILE_RELEASE_DEBUG=false CARGO_TARGET_DIR="$target/loom" nice -n 19 \
        cargo test -p warpheap-device --features loom --release --locked --test 'loom*' >"$models" 2>&1 &
    models_pid=$!

    step lints
    # Without GPU kernels, as for documentation: lints do not need them.
    DOCS_RS=1 cargo clippy --workspace --all-targets --all-features --locked -- -D warnings
fi

step the libraries without default features, and with each feature alone
for build in warpheap-device: warpheap-device:{rustacuda,cust,bytemuck,debug,delays,panic-message} warpheap: warpheap-sim: warpheap:{debug,delays,csv,nvtx} warpheap-harness:{,debug,delays,nvtx,program} warpheap-c:; do
    DOCS_RS=1 cargo check --package "${build%:*}" --no-default-features --features "${build#*:}" --locked
done

step build the tests, with all features but debug and delays
# These two change the program's kernels: the register checks need the kernels without them.
tests=(cargo test --workspace --features cli,rustacuda,cust,bytemuck,nvtx --locked)
"${tests[@]}" --no-run

# While the model checker runs beside it: most of it is one build on one core.
step debug and normal heaps, and delays, built with the features debug and delays
cargo test --locked --features debug,delays --test device_pools --test heap_groups --test delays

step run the tests
# The tests of the examples start the program `warpheap`, which was built above.
WARPHEAP_REQUIRE_PROGRAM=1 "${tests[@]}"

step the example of the README, which the tests have built
"$target/debug/examples/hello"

step documentation
DOCS_RS=1 RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --all-features --locked

if [ -z "$quick" ]; then
    step model checker
    status=0
    wait "$models_pid" || status=$?
    cat "$models"
    [ "$status" -eq 0 ] || exit "$status"
fi

step "all tests passed${quick:+ (quick: without clippy and the model checker)}$skipped"
