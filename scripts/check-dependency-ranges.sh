#!/usr/bin/env bash
# Checks that the published crates compile with the oldest dependency versions that their manifests
# name, and with the newest that they allow. The lock file, with versions in between, stays
# unchanged.
set -euo pipefail
cd "$(dirname "$0")/.."

published=(warpheap-device warpheap-build warpheap warpheap-harness)

# Use the common target folder, so that dependencies common to both checks are built once.
CARGO_TARGET_DIR=$(realpath -m "${CARGO_TARGET_DIR:-target}")
# DOCS_RS skips the kernels: their only dependency is warpheap-device.
export CARGO_TARGET_DIR DOCS_RS=1

copy=$CARGO_TARGET_DIR/dependency-ranges
rm -rf "$copy"
mkdir -p "$copy"
cp -rp Cargo.toml Cargo.lock build.rs README.md builder examples gpu harness host tests "$copy"
cd "$copy"

check() {
    echo "== $1 versions"
    git --no-pager diff --no-index --stat -- "$OLDPWD/Cargo.lock" Cargo.lock || true
    cargo check --locked --all-features "${published[@]/#/--package=}"
}

cargo update
check newest
# An unstable cargo option; RUSTC_BOOTSTRAP=1 enables it in a released cargo.
RUSTC_BOOTSTRAP=1 cargo update -Z direct-minimal-versions
check oldest
