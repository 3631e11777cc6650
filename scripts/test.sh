#!/usr/bin/env bash
# Sets up and runs the whole test suite. `--quick` leaves out clippy and the model checker. `--all`
# adds kernels for sm_90, for which it needs their compiler, the oldest and the newest versions of
# dependencies, the Python package, and a sample of mutants, for which it needs a network.
set -euo pipefail
cd "$(dirname "$0")/.."

quick='' all=''
case "${1:-}" in
    --quick) quick=yes ;;
    --all) all=yes ;;
    '') ;;
    *)
        echo "usage: scripts/test.sh [--quick | --all]" >&2
        exit 2
        ;;
esac

target=${CARGO_TARGET_DIR:-target}

# As in Cargo.toml: the projects that the tests build have profiles of their own.
export CARGO_PROFILE_DEV_DEBUG=false

step() { printf '\n== %s (%d s so far)\n' "$*" "$SECONDS"; }

# beside NAME COMMAND...: runs the command in parallel with the steps that follow, at the lowest
# priority. The command needs its own target folder, because cargo locks it.
declare -A jobs logs
beside() {
    local name=$1
    shift
    logs[$name]=$(mktemp)
    nice -n 19 "$@" >"${logs[$name]}" 2>&1 &
    jobs[$name]=$!
}
trap 'kill "${jobs[@]}" 2>/dev/null || true; rm -f "${logs[@]}"' EXIT

# join NAME: waits for the command, prints its output and fails if it failed.
join() {
    local status=0
    step "$1"
    wait "${jobs[$1]}" || status=$?
    cat "${logs[$1]}"
    [ "$status" -eq 0 ] || exit "$status"
}

step set up
scripts/setup.sh

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

[ -z "$all" ] || beside 'versions of dependencies' scripts/check-dependency-ranges.sh
[ -z "$all" ] || beside 'the Python package' scripts/python.sh --kernels
[ -z "$all" ] || beside 'a sample of mutants' scripts/mutants.sh --sample
if [ -z "$quick" ]; then
    # The flag would cause a full rebuild in the common target folder.
    beside 'model checker' env RUSTFLAGS='--cfg loom' CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
        CARGO_PROFILE_RELEASE_DEBUG=false CARGO_TARGET_DIR="$target/loom" cargo test -p warpheap-device --features loom --release --locked --test 'loom*'

    step lints
    # Without GPU kernels, as for documentation: lints do not need them.
    DOCS_RS=1 cargo clippy --workspace --all-targets --all-features --locked -- -D warnings
fi

step the libraries without default features, and with each feature alone
for build in warpheap-device: warpheap-device:{rustacuda,cust,bytemuck,debug,delays,panic-message} warpheap: warpheap:{debug,delays,csv,nvtx} warpheap-harness:{,debug,delays,nvtx} warpheap-c:; do
    DOCS_RS=1 cargo check --package "${build%:*}" --no-default-features --features "${build#*:}" --locked
done

step build the tests, with all features but debug and delays
# These two change the program's kernels: the register checks need the kernels without them.
tests=(cargo test --workspace --features cli,rustacuda,cust,bytemuck,nvtx --locked)
"${tests[@]}" --no-run
# The build scripts compile the kernels for sm_70 and sm_80. The tests have built the example.
for kernels in ${all:+host harness}; do
    beside "kernels of $kernels for sm_90" \
        "$target/debug/examples/ptx" "$kernels/kernels" "$target/$kernels.ptx" sm_90
done

# While jobs run beside it: most of it is one build on one core.
step debug and normal heaps, and delays, built with the features debug and delays
cargo test --locked --features debug,delays --test device_pools --test heap_groups --test delays

step run the tests
# The tests of the examples start the program `warpheap`, which was built above.
WARPHEAP_REQUIRE_PROGRAM=1 "${tests[@]}"

step the example of the README, which the tests have built
"$target/debug/examples/hello"

step documentation
DOCS_RS=1 RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --all-features --locked

[ -n "$quick" ] || join 'model checker'
if [ -n "$all" ]; then
    join 'kernels of host for sm_90'
    join 'kernels of harness for sm_90'
    join 'versions of dependencies'
    join 'the Python package'
    join 'a sample of mutants'
fi

step "all tests passed${quick:+ (quick: without clippy and the model checker)}$skipped"
