#!/usr/bin/env bash
# Runs the demo anew and checks what it claims: from under 20 % to over 90 % held-out accuracy, and a log that verifies.
set -euo pipefail

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
# Of the whole workspace, so that the features, and with them the dependencies, are those already built.
cargo build --locked -q --workspace --bins --examples
bin=${CARGO_TARGET_DIR:-target}/debug
"$bin/async_grpo" --run-dir "$dir/run" "$@" | tee "$dir/output"
"$bin/anabranch" verify "$dir/run"
tail -n 1 "$dir/output" | awk '
    match($0, /^accuracy [0-9.]+% -> [0-9.]+% \| steps [0-9]+ \| wall [0-9.]+s \| log /) {
        before = $2 + 0; after = $4 + 0
        if (before < 20 && after > 90) { ok = 1; exit }
        print "accuracy went from " before " % to " after " %, expected from under 20 % to over 90 %"; exit
    }
    { print "the last line is not the one the README shows: " $0 }
    END { exit !ok }'
