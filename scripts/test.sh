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

step format
cargo fmt --all --check

if [ -z "$quick" ]; then
    step lints
    cargo clippy --workspace --all-targets --all-features --locked -- -D warnings
fi

step tests, with the rustacuda and cust features
cargo test --workspace --all-features --locked

if [ -z "$quick" ] && ! compgen -G 'gpu/tests/loom*.rs' >/dev/null; then
    step model checker: left out, there is no gpu/tests/loom*.rs
elif [ -z "$quick" ]; then
    step model checker
    # Its own target folder: the flag would have everything built again, here and at the next build.
    RUSTFLAGS='--cfg loom' CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom" \
        cargo test -p warpheap-device --release --locked --test 'loom*'
fi

step documentation
RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --all-features --locked

step "all tests passed${quick:+ (quick: without clippy and the model checker)}"
