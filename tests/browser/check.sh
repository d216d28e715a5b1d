#!/usr/bin/env bash
# The report of the recorded run, opened in a real browser.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
# Of the whole workspace, so that the features, and with them the dependencies, are those already built.
cargo build --locked --quiet --workspace --bins --examples
python3 "$here/check_report.py" "${CARGO_TARGET_DIR:-target}/debug/anabranch" "$here/../../datasets/recorded/parquet"
