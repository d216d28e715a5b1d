#!/usr/bin/env bash
# The segments of the recorded run as DuckDB, pyarrow and Polars see them, and the SQL recipes with their stored answers.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
recorded=$here/../../datasets/recorded
python=$("$here/setup.sh")
# Of the whole workspace, so that the features, and with them the dependencies, are those already built.
cargo build --locked --quiet --workspace --bins --examples
audit=$(mktemp)
trap 'rm -f "$audit"' EXIT
"${CARGO_TARGET_DIR:-target}/debug/anabranch" audit "$recorded/parquet" --json >"$audit"
"$python" "$here/check_readers.py" "$recorded/parquet"
"$python" "$here/check_recipes.py" "$recorded/parquet" "$recorded/expected" "$audit"
