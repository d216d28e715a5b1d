#!/usr/bin/env bash
# Draws the pictures of the README anew: docs/screenshots/*.png, of the report of the recorded run.
set -euo pipefail

cd "$(dirname "$0")/.."
# Of the whole workspace, so that the features, and with them the dependencies, are those already built.
cargo build --locked --quiet --workspace --bin anabranch
mkdir -p docs/screenshots
python3 tests/browser/screenshots.py "${CARGO_TARGET_DIR:-target}/debug/anabranch" datasets/recorded/parquet docs/screenshots
