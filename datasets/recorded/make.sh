#!/usr/bin/env bash
# Makes the recorded run anew, with the demo, and the answers of the SQL recipes to it. Further flags, such as
# --device, are passed on to the demo.
# `make.sh scripted` makes one with the scripted engine instead, which needs no device.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
bin=${CARGO_TARGET_DIR:-target}/debug
# Of the whole workspace, so that the features, and with them the dependencies, are those already built.
if [ "${1:-}" = scripted ]; then
    cargo build --locked --quiet --workspace --bin anabranch --example scripted_run
    "$bin/examples/scripted_run" "$made/run/parquet" 30
else
    cargo build --locked --quiet --workspace --bin anabranch --bin async_grpo
    # The buffer holds four batches, so that groups grow stale in it, and what runs at a publication is aborted.
    "$bin/async_grpo" --run-dir "$made/run" --steps 16 --batch 8 --group-size 4 --in-flight 16 --capacity 32 \
        --max-staleness 1 --in-flight-mode abort --unused retry --checkpoint-every 6 --seed 1 "$@"
    "$bin/anabranch" export "$made/run"
fi
rm -f "$made/run/parquet/LOCK"
"$bin/anabranch" verify "$made/run/parquet"
"$bin/anabranch" audit "$made/run/parquet" --json >"$made/audit.json"
python3 - "$made/audit.json" "$made/run/parquet" <<'PYTHON'
import json, pathlib, sys

audit = json.load(open(sys.argv[1]))["audit"]
kinds = {reason: audit["groups"]["excluded"].get(reason, 0) for reason in ("stale", "filtered", "aborted")}
kinds["retried"] = sum(leased for attempt, leased in audit["attempts"].items() if int(attempt) > 0)
size = sum(path.stat().st_size for path in pathlib.Path(sys.argv[2]).rglob("*") if path.is_file())
segments = len(list(pathlib.Path(sys.argv[2], "manifest").glob("*.json")))
print(f"{kinds}, {size} bytes in {segments} segments")
lacking = [kind for kind, groups in kinds.items() if groups == 0]
assert not lacking, f"the run has no {' or '.join(lacking)} groups: give it other settings"
assert size < 500_000, "the recording is to stay under 500,000 bytes: give it fewer --steps"
assert segments > 1, "one segment shows no pruning: give it more --steps, or a smaller --checkpoint-every"
PYTHON
rm -rf "$here/parquet" "$here/expected"
cp -r "$made/run/parquet" "$here/parquet"
"$(tests/python/setup.sh)" tests/python/check_recipes.py "$here/parquet" "$here/expected" "$made/audit.json" --update
