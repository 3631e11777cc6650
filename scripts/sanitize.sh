#!/usr/bin/env bash
# Runs host tests under sanitizers. usage: scripts/sanitize.sh [memory | threads]; default: both.
#
# memory: under valgrind: kernels on the CPU, copies, drops, and concurrent calls of other threads.
#   With this --max-stackframe, valgrind regards stacks at least 40,000 bytes apart as separate. The
#   stacks of lanes (fibers) are 128 KiB apart.
# threads: the host pools under ThreadSanitizer, with an instrumented standard library.
#   ThreadSanitizer does not support fibers, so tests that run kernels are skipped.
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(rustc -vV | sed -n 's/^host: //p')

# Each runs in a subshell, so that its variables do not reach the other one.
memory() (
    command -v valgrind >/dev/null || {
        echo "valgrind is needed (Debian: apt-get install valgrind)" >&2
        exit 2
    }
    export "CARGO_TARGET_$(tr a-z- A-Z_ <<<"$target")_RUNNER=valgrind -q --error-exitcode=9 --max-stackframe=40000 --fair-sched=yes"
    local tests=(cargo test --quiet --locked -p warpheap)
    "${tests[@]}" --test driver -- --test-threads=1 copies:: lifetimes:: memory:: streams::
    "${tests[@]}" --test simt -- --test-threads=1 endings:: errors:: shared::
    "${tests[@]}" --lib -- --test-threads=1 faults::races driver::registry driver::cpu
)

# Skipped: tests that run kernels, and some tests that take minutes. Each is the start of a name.
skipped=(
    bump_pool::a_region_can_be_allocated_to_the_last_byte
    driver_pool::a_block_crosses_streams
    driver_pool::a_trim_keeps
    handles::threads::handles_move_between_threads
    threads::caching_with_all_adaptors
)

threads() (
    local rustc runtime
    # A compiler with the source of the standard library, and the runtime of any rustup toolchain.
    rustc=${WARPHEAP_RUSTC:-/usr/bin/rustc}
    runtime=$(find "$(rustc --print target-libdir)" -name 'librustc*_rt.tsan.a' | head -n 1)
    if [ -z "$runtime" ] || [ ! -d "$("$rustc" --print sysroot)/lib/rustlib/src/rust/library/std" ]; then
        echo "ThreadSanitizer needs its runtime (a toolchain of rustup's) and $rustc with the source of std" >&2
        exit 2
    fi
    local link="-Clink-arg=-Wl,--whole-archive -Clink-arg=$runtime -Clink-arg=-Wl,--no-whole-archive"
    # The runtime replaces libc functions, so libc must follow it on the linker's command line.
    link+=" -Clink-arg=-lc -Clink-arg=-lm -Clink-arg=-Wl,--unresolved-symbols=ignore-in-object-files"
    # DOCS_RS: GPU kernels are not needed. --target: build scripts must not get the flags.
    export DOCS_RS=1 RUSTC=$rustc RUSTC_BOOTSTRAP=1 TSAN_OPTIONS=halt_on_error=1
    export RUSTFLAGS="-Zsanitizer=thread -Zexternal-clangrt $link"
    export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/threads
    local tests=(cargo test --locked -Zbuild-std --target "$target" -p warpheap --test host_pools --)
    local all name
    all=$("${tests[@]}" --list)
    for name in "${skipped[@]}"; do
        grep -q "^$name" <<<"$all" || {
            echo "no test is called $name: name it in this script as it is called today" >&2
            exit 1
        }
    done
    "${tests[@]}" --test-threads=1 "${skipped[@]/#/--skip=}"
)

case "${1:-both}" in
    memory) memory ;;
    threads) threads ;;
    both)
        memory
        threads
        ;;
    *)
        sed -n 's/^# .*usage: //p' "$0" >&2
        exit 2
        ;;
esac
