#!/usr/bin/env bash
# Builds warpheap for C and C++: `scripts/c-library.sh [FOLDER]`, by default target/c-library.
# FOLDER gets `include/` (headers, with the generated warpheap_inline.cuh), `lib/` (libwarpheap) and
# `device/` (the device library as PTX).
# If ptxas and fatbinary are found (on the PATH, or beside WARPHEAP_PTXAS), `device/` also gets a
# relocatable cubin for each architecture and one fat binary of all.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh

target=${CARGO_TARGET_DIR:-target}
folder=${1:-$target/c-library}
profile=${WARPHEAP_PROFILE:-release}
output=$target/$profile
[ "$profile" != dev ] || output=$target/debug
mkdir -p "$folder"/{include,lib,device}

cargo build --locked --profile "$profile" --package warpheap-c
cargo run --quiet --locked --profile "$profile" --package warpheap-c-device --example library -- "$folder/device"
cp bindings/c/include/* "$folder/include/"
mv "$folder/device/warpheap_inline.cuh" "$folder/include/"
cp "$output/libwarpheap.so" "$folder/lib/libwarpheap.so.0"
ln -sf libwarpheap.so.0 "$folder/lib/libwarpheap.so"

ptxas=${WARPHEAP_PTXAS:-$(command -v ptxas || true)}
if [ -z "$ptxas" ]; then
    echo "no ptxas: $folder/device has PTX only"
    exit
fi
images=()
for ptx in "$folder"/device/*.ptx; do
    arch=${ptx%.ptx} arch=${arch##*.}
    # ptxas 13 has no sm_70 any more: PTX is what such a GPU gets.
    if "$ptxas" -c -arch="$arch" "$ptx" -o "${ptx%.ptx}.cubin" 2>/dev/null; then
        images+=("--image3=kind=elf,sm=${arch#sm_},file=${ptx%.ptx}.cubin")
    fi
    images+=("--image3=kind=ptx,sm=${arch#sm_},file=$ptx")
done
fatbinary=$(dirname "$ptxas")/fatbinary
[ ! -x "$fatbinary" ] || "$fatbinary" -64 --device-c --create="$folder/device/warpheap_device.fatbin" "${images[@]}"
ls -l "$folder"/*
