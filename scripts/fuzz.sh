#!/usr/bin/env bash
# Runs random cases: command lines with damaged files of results, maps and logs, in the test process
# and as processes, and sequences of calls from C.
# usage: scripts/fuzz.sh [CASES [PROCESSES [SEED]]]; default: 1000000 10000 and the time as the seed
#
# The calls from C are a tenth of CASES. A case that fails is printed in the form of the files in
# harness/tests/corpus/cases, which each run starts with. Integer overflows panic.
set -euo pipefail
cd "$(dirname "$0")/.."

cases=${1:-1000000} processes=${2:-10000} seed=${3:-$(date +%s)}
# Cases of one process: the text of each is kept until its end.
part=20000

# DOCS_RS: GPU kernels are not needed. Optimised, but with the checks of a debug build.
export DOCS_RS=1 CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/fuzz RUST_BACKTRACE=0
export CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=false
program=(cargo test --quiet --release --locked -p warpheap-harness --features cli --bin warpheap)
library=(cargo test --quiet --release --locked -p warpheap-c --lib)
cargo build --release --locked -p warpheap-harness --features cli --bin warpheap
"${program[@]}" --no-run
"${library[@]}" --no-run
export WARPHEAP_REQUIRE_PROGRAM=1
# A case that asks for more memory than this must fail by itself.
ulimit -v $((16 << 20))

# run NAME COUNT VARIABLE COMMAND...: COUNT cases in parts, each with a seed of its own.
run() {
    local name=$1 count=$2 variable=$3 left=$2
    shift 3
    echo "== $name: $count cases, from seed $seed on"
    while [ "$left" -gt 0 ]; do
        local now=$((left < part ? left : part))
        # A part takes minutes: one that takes an hour hangs.
        timeout --kill-after=10 3600 env "$variable=$now" WARPHEAP_FUZZ_SEED="$seed" "$@" >"$CARGO_TARGET_DIR/part.log" 2>&1 || {
            tail -c 100000 "$CARGO_TARGET_DIR/part.log"
            echo "FAILED: $name with seed $seed" >&2
            exit 1
        }
        grep -q 'test result: ok. 1 passed' "$CARGO_TARGET_DIR/part.log" || {
            echo "FAILED: $name ran no test, with seed $seed" >&2
            exit 1
        }
        left=$((left - now)) seed=$((seed + 1))
        echo "$((count - left)) done after $SECONDS s"
    done
}

run 'processes' "$processes" WARPHEAP_FUZZ_PROCESSES "${program[@]}" fuzz::outside
run 'command lines and files' "$cases" WARPHEAP_FUZZ_CASES "${program[@]}" fuzz::inside
run 'calls from C' "$((cases / 10))" WARPHEAP_FUZZ_CALLS "${library[@]}" fuzz
echo "no case of $((cases + cases / 10 + processes)) failed, in $SECONDS s"
