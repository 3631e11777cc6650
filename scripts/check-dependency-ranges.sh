#!/usr/bin/env bash
# Checks that the published crates compile with the oldest versions of their dependencies that their manifests
# name, and with the newest that they allow. The lock file, which has versions between them, stays as it is.
set -euo pipefail
cd "$(dirname "$0")/.."

published=(warpheap-device warpheap-build warpheap warpheap-harness)

# What both have alike is built once, in the target folder of everything else.
CARGO_TARGET_DIR=$(realpath -m "${CARGO_TARGET_DIR:-target}")
# Kernels have no dependencies but warpheap-device.
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
# An option of unreleased cargos; released ones take it so.
RUSTC_BOOTSTRAP=1 cargo update -Z direct-minimal-versions
check oldest
