#!/usr/bin/env bash
# Runs tests of the host's side under valgrind: kernels on the CPU, copies, drops, and what other threads do meanwhile.
# Fibers count as stacks of their own from 40,000 bytes apart; the stacks of lanes lie 128 KiB apart.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v valgrind >/dev/null || {
    echo "valgrind is needed (Debian: apt-get install valgrind)" >&2
    exit 2
}

host=$(rustc -vV | sed -n 's/^host: //p' | tr a-z- A-Z_)
export "CARGO_TARGET_${host}_RUNNER=valgrind -q --error-exitcode=9 --max-stackframe=40000 --fair-sched=yes"

under_valgrind() { cargo test --quiet --locked -p warpheap "$@"; }

under_valgrind --test driver -- --test-threads=1 copies:: lifetimes:: memory:: streams::
under_valgrind --test simt -- --test-threads=1 endings:: errors:: shared::
under_valgrind --lib -- --test-threads=1 driver::races driver::registry driver::cpu
