#!/usr/bin/env bash
# Compiles the facade without features, with each feature alone and with all of them, and sees what it depends on.
set -euo pipefail

cd "$(dirname "$0")/.."
mapfile -t features < <(cargo metadata --locked --no-deps --format-version 1 | python3 -c '
import json, sys
facade = next(p for p in json.load(sys.stdin)["packages"] if p["name"] == "anabranch")
print(*sorted(name for name in facade["features"] if name != "default"), sep="\n")')

depends_on() { # CRATE FLAGS…: whether the facade with these flags depends on the crate
    local crate=$1
    shift
    cargo tree --locked --package anabranch --edges normal,build --prefix none --format '{p}' "$@" | grep "^$crate v" >/dev/null
}

for heavy in librocksdb-sys cubecl wgpu cudarc parquet arrow; do
    if depends_on "$heavy" --no-default-features; then
        echo "error: without features the facade depends on $heavy: make what needs it optional" >&2
        exit 1
    fi
done
for pair in log:librocksdb-sys parquet:parquet policy:cubecl wgpu:wgpu cuda:cudarc; do
    if ! depends_on "${pair#*:}" --no-default-features --features "${pair%:*}"; then
        echo "error: expected the feature ${pair%:*} to bring ${pair#*:}, found that it does not" >&2
        exit 1
    fi
done

check() {
    echo "-- cargo check -p anabranch $*"
    cargo check --locked --quiet --package anabranch "$@"
}
check --no-default-features
for feature in "${features[@]}"; do
    check --no-default-features --features "$feature"
done
check
check --all-features
echo "the facade compiles with each of ${#features[@]} features alone, with none and with all"
