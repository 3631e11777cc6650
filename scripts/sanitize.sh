#!/usr/bin/env bash
# Runs host tests under sanitizers.
# usage: scripts/sanitize.sh [memory | address | threads | miri]...
# The default is memory, address and threads.
#
# memory: under valgrind: kernels on the CPU, copies, drops, and concurrent calls of other threads.
#   With this --max-stackframe, valgrind regards stacks at least 40,000 bytes apart as separate. The
#   stacks of lanes (fibers) are 128 KiB apart.
# address: under AddressSanitizer, with its search for leaks and with an instrumented standard
#   library that checks its own preconditions: kernels on the CPU, the driver's model, host pools.
# threads: the same tests under ThreadSanitizer, except for some that take minutes. With the cfg
#   `tsan`, the executor tells it which fiber runs, and a fence is an operation that it knows.
# miri: under Miri, which must be installed as a component of a nightly toolchain
#   (WARPHEAP_MIRI=TOOLCHAIN; default: nightly): the allocators of `gpu/` with their model of a GPU,
#   and the parts of the host pools that call no foreign function. Miri has no fibers.
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

# instrumented SANITIZER RUNTIME FLAGS...: sets the environment of a build with an instrumented
# standard library.
instrumented() {
    local sanitizer=$1 rustc runtime
    shift
    # A compiler with the source of the standard library, and the runtime of any rustup toolchain.
    rustc=${WARPHEAP_RUSTC:-/usr/bin/rustc}
    runtime=$(find "$(rustc --print target-libdir)" -name "librustc*_rt.$1.a" | head -n 1)
    shift
    if [ -z "$runtime" ] || [ ! -d "$("$rustc" --print sysroot)/lib/rustlib/src/rust/library/std" ]; then
        echo "a sanitizer needs its runtime (a toolchain of rustup's) and $rustc with the source of std" >&2
        exit 2
    fi
    local link="-Clink-arg=-Wl,--whole-archive -Clink-arg=$runtime -Clink-arg=-Wl,--no-whole-archive"
    # The runtime replaces libc functions, so libc must follow it on the linker's command line.
    link+=" -Clink-arg=-lc -Clink-arg=-lm -Clink-arg=-Wl,--unresolved-symbols=ignore-in-object-files"
    # DOCS_RS: GPU kernels are not needed.
    export DOCS_RS=1 RUSTC=$rustc RUSTC_BOOTSTRAP=1 CARGO_PROFILE_DEV_DEBUG=line-tables-only
    export RUSTFLAGS="-Zsanitizer=$sanitizer -Zexternal-clangrt $* $link"
    export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/$sanitizer
    # --target: build scripts must not get the flags.
    # The package of the executor, too: the one that has corosensei.
    tests=(cargo test --locked -Zbuild-std --target "$target" -p warpheap -p warpheap-sim)
}

# The modules of the executor whose unit tests run here.
executor=(error:: lane:: overflow:: panic:: threads::)

# skipping TEST NAME...: runs a test program without the tests whose names start so.
skipping() {
    local program=("${tests[@]}" --test "$1" --) all name
    shift
    all=$("${program[@]}" --list)
    for name in "$@"; do
        grep -q "^$name" <<<"$all" || {
            echo "no test is called $name: name it in this script as it is called today" >&2
            exit 1
        }
    done
    "${program[@]}" --test-threads=1 "${@/#/--skip=}"
}

address() (
    local tests
    # The checks of the standard library's own preconditions need its debug assertions.
    instrumented address asan -Zub-checks=yes
    tests+=(--features corosensei/sanitizer)
    "${tests[@]}" --lib -- --test-threads=1 "${executor[@]}" driver:: host_pools:: faults::
    skipping simt
    skipping host_pools
    skipping driver
)

threads() (
    local tests
    instrumented thread tsan --cfg tsan
    # die_after_fork: a test starts threads in a forked child.
    export TSAN_OPTIONS='halt_on_error=1 die_after_fork=0'
    # Skipped: the standard library does not report the overflow of a thread's stack here.
    "${tests[@]}" --lib -- --test-threads=1 --skip=other_faults_reach_the_handler_of_the_program \
        "${executor[@]}" driver:: host_pools::
    skipping simt
    # Each takes many minutes.
    skipping host_pools bump_pool::a_region_can_be_allocated_to_the_last_byte threads::caching_with_all_adaptors
    # It reserves more than one allocation may have here.
    skipping driver memory::memory_is_not_touched_before_it_is_used
)

miri() (
    local toolchain=${WARPHEAP_MIRI:-nightly}
    cargo "+$toolchain" miri --version >/dev/null 2>&1 || {
        echo "Miri is no component of the toolchain $toolchain: rustup component add miri rust-src --toolchain $toolchain" >&2
        exit 2
    }
    export DOCS_RS=1 CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/miri PROPTEST_CASES=4
    # -Zmiri-disable-isolation: property tests read the time and files.
    # -Zmiri-permissive-provenance: addresses on the device are integers.
    export MIRIFLAGS='-Zmiri-disable-isolation -Zmiri-permissive-provenance'
    cargo "+$toolchain" miri test --locked -p warpheap-machine -p warpheap-device --lib
    cargo "+$toolchain" miri test --locked -p warpheap-device --test models -- bump_properties freelist_properties
    cargo "+$toolchain" miri test --locked -p warpheap --lib -- host_pools::caching::arena host_pools::caching::tests::limits::bins \
        host_pools::adaptor::logged::read host_pools::tag
)

[ $# -gt 0 ] || set -- memory address threads
for kind; do
    case $kind in
        memory | address | threads | miri) "$kind" ;;
        *)
            sed -n 's/^# .*usage: //p' "$0" >&2
            exit 2
            ;;
    esac
done
