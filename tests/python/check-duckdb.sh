#!/usr/bin/env bash
# Sealed segments as DuckDB reads them, while the process that seals is killed again and again.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
python=$("$here/setup.sh")
# Under --workspace, so that nothing is built again with other features.
cargo build --locked --quiet --workspace --example segments
"$python" "$here/check_duckdb.py" "${CARGO_TARGET_DIR:-target}/debug/examples/segments"
