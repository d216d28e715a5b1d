#!/usr/bin/env bash
# Makes the recorded run anew, with the demo, and the answers of the SQL recipes to it. Further flags, such as
# --device, are passed on to the demo.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
bin=${CARGO_TARGET_DIR:-target}/debug
# Vulkan asks for it; any directory silences the message.
export XDG_RUNTIME_DIR=${XDG_RUNTIME_DIR:-${TMPDIR:-/tmp}}
# Of the whole workspace, so that the features, and with them the dependencies, are those already built.
cargo build --locked --quiet --workspace --bins --examples

# More is generated than trained on, so that groups grow stale in the buffer and some are in flight at each publication.
session() { # MODE STEP STATUS FLAG…: a session that ends with STATUS, killed once it has made STEP if that is 137
    local mode=$1 last=$2 expected=$3 line pid status=0
    shift 3
    coproc demo { exec "$bin/async_grpo" --run-dir "$made/run" --steps 16 --batch 4 --group-size 4 --in-flight 12 \
        --capacity 16 --max-staleness 1 --unused retry --checkpoint-every 4 --seed 1 --in-flight-mode "$mode" "$@"; }
    pid=$demo_PID
    while read -r line; do
        echo "$line"
        if [[ $expected -eq 137 && $line =~ ^step\ +$last\  ]]; then kill -KILL "$pid"; fi
    done <&"${demo[0]}"
    wait "$pid" 2>/dev/null || status=$?
    [ "$status" -eq "$expected" ] || { echo "error: the session ended with status $status, expected $expected" >&2; exit 1; }
}
session retract 6 137 "$@"
session in-place 11 137 --accept-changes "$@"
session abort 16 0 --accept-changes "$@"
rm -f "$made/run/parquet/LOCK"
"$bin/anabranch" verify "$made/run"
"$bin/anabranch" verify "$made/run/parquet"
"$bin/anabranch" audit "$made/run/parquet" --json >"$made/audit.json"
python3 - "$made/audit.json" "$made/run/parquet" <<'PYTHON'
import json, pathlib, sys

audit = json.load(open(sys.argv[1]))["audit"]
kinds = {reason: audit["groups"]["excluded"].get(reason, 0) for reason in ("stale", "filtered", "aborted")}
kinds["retried"] = sum(leased for attempt, leased in audit["attempts"].items() if int(attempt) > 0)
size = sum(path.stat().st_size for path in pathlib.Path(sys.argv[2]).rglob("*") if path.is_file())
segments = len(list(pathlib.Path(sys.argv[2], "manifest").glob("*.json")))
print(f"{kinds}, {size} bytes in {segments} segments, {audit['sessions']} sessions")
lacking = [kind for kind, groups in kinds.items() if groups == 0]
assert not lacking, f"the run has no {' or '.join(lacking)} groups: give it other settings"
assert size < 500_000, "the recording is to stay under 500,000 bytes: give it fewer --steps"
assert segments > 1, "one segment shows no pruning: give it more --steps, or a smaller --checkpoint-every"
PYTHON
rm -rf "$here/parquet" "$here/expected"
cp -r "$made/run/parquet" "$here/parquet"
"$(tests/python/setup.sh)" tests/python/check_recipes.py "$here/parquet" "$here/expected" "$made/audit.json" --update
