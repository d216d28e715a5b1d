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

# The kernels come along because CubeCL, which they need, decides about a feature of `syn`, which RocksDB's bindings are
# made with: without them RocksDB's C++ would be compiled once more. They depend on none of our crates.
check() { # FEATURES, with commas
    echo "-- the facade with ${1:-no features}"
    cargo check --locked --quiet --package anabranch --package anabranch-kernels --no-default-features --features "$1"
}
check ""
for feature in "${features[@]}"; do
    check "anabranch/$feature"
done
check anabranch/default
check "$(printf 'anabranch/%s,' "${features[@]}")"
echo "the facade compiles with each of ${#features[@]} features alone, with none, with its default and with all"
