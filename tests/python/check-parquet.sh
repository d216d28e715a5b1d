#!/usr/bin/env bash
# The segments of the recorded run as DuckDB, pyarrow and Polars see them, and the SQL recipes with their stored answers.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
recorded=$here/../../datasets/recorded
python=$("$here/setup.sh")
"$python" "$here/check_readers.py" "$recorded/parquet"
"$python" "$here/check_recipes.py" "$recorded/parquet" "$recorded/expected"
