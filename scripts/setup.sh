#!/usr/bin/env bash
# Installs the missing build dependencies of warpheap. Does nothing if none is missing. `--python`
# adds virtual environments of Python, for the tests of the Python package.
#
# Every Rust program needs a C linker. Only GPU kernels need the device compiler: the CPU side
# builds and runs without it, so a missing device compiler is reported but is not an error.
set -euo pipefail

say() { printf 'setup: %s\n' "$*" >&2; }

# Whether $1 is at least Rust 1.96 and has the source of its core library.
builds_kernels() {
    local sysroot major minor
    sysroot=$(env -u RUSTUP_TOOLCHAIN "$1" --print sysroot 2>/dev/null) || return 1
    [ -f "$sysroot/lib/rustlib/src/rust/library/core/src/lib.rs" ] || return 1
    IFS=. read -r major minor _ < <(env -u RUSTUP_TOOLCHAIN "$1" -vV | sed -n 's/^release: //p')
    [ "$major" -gt 1 ] || [ "$minor" -ge 96 ]
}

device_compiler() {
    local rustc name
    if [ -n "${WARPHEAP_RUSTC:-}" ]; then
        builds_kernels "$WARPHEAP_RUSTC" && echo "$WARPHEAP_RUSTC"
        return
    fi
    {
        type -ap rustc || true
        if command -v rustup >/dev/null; then
            rustup toolchain list 2>/dev/null | while read -r name _; do
                rustup which --toolchain "$name" rustc 2>/dev/null || true
            done
        fi
        printf '%s\n' /usr/bin/rustc /usr/local/bin/rustc
    } | while read -r rustc; do
        if [ -x "$rustc" ] && builds_kernels "$rustc"; then
            echo "$rustc"
            break
        fi
    done
}

is_debian() { command -v apt-get >/dev/null && command -v dpkg >/dev/null; }

# Installs the Debian packages $* if that removes no package. Returns 1 on failure.
install() {
    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        if ! sudo -n true 2>/dev/null; then
            say "to install them: sudo apt-get update && sudo apt-get install $*"
            return 1
        fi
        as_root=(sudo)
    fi
    say "installing $*"
    "${as_root[@]}" apt-get update -qq >&2 || return 1
    if apt-get install -s --no-install-recommends "$@" 2>/dev/null | grep '^Remv' >&2; then
        say "installing $* would remove the packages above; nothing was changed"
        return 1
    fi
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

need_cargo() {
    if ! command -v cargo >/dev/null; then
        say "there is no cargo on the PATH: install Rust's stable toolchain with rustup, then run this again"
        exit 1
    fi
}

need_linker() {
    if command -v cc >/dev/null && echo 'int main(void){return 0;}' | cc -x c -o /dev/null - 2>/dev/null; then
        return
    fi
    if ! is_debian || ! install gcc libc6-dev; then
        say "a C compiler and linker (cc) is needed to build any Rust program: install gcc"
        exit 1
    fi
}

want_device_compiler() {
    local rustc
    rustc=$(device_compiler || true)
    if [ -z "$rustc" ] && is_debian && [ -z "${WARPHEAP_RUSTC:-}" ]; then
        install rustc-web rust-web-src || true
        rustc=$(device_compiler || true)
    fi
    if [ -n "$rustc" ]; then
        say "kernels are compiled by $rustc"
        return
    fi
    say "no compiler for GPU kernels: everything runs on the CPU only"
    [ -z "${WARPHEAP_RUSTC:-}" ] || say "WARPHEAP_RUSTC names $WARPHEAP_RUSTC, which is older than 1.96 or lacks the source of its core library; unset it to search for another"
    say "to get one: apt-get install rustc-web rust-web-src (Debian, Ubuntu),"
    say "            rustup toolchain install nightly --component rust-src (elsewhere)"
}

need_python() {
    if python3 -c 'import ensurepip, venv' 2>/dev/null; then
        return
    fi
    if ! is_debian || ! install python3-venv; then
        say "the Python package needs python3 with its modules venv and ensurepip: install python3-venv"
        exit 1
    fi
}

need_cargo
need_linker
want_device_compiler
[ "${1:-}" != --python ] || need_python
