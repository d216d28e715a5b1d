#!/usr/bin/env bash
# Builds with cargo and says what a first build compiles, how long that takes, and every half minute how far it is.
# Usage: build.sh CARGO-ARGUMENTS…, for example build.sh build --locked --workspace
set -euo pipefail

cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}

# The profile's build folder without RocksDB's library is cold.
if compgen -G "$target/debug/build/librocksdb-sys-*/out/librocksdb.a" >/dev/null; then
    exec cargo "$@"
fi
crates=$(cargo tree --locked --workspace --edges normal,build --prefix none --format '{p}' | sed '/^$/d; s/ (\*)$//' | sort -u | wc -l)
cat <<EOF
This is the first build in $target. It compiles $crates crates and
RocksDB's C++, 343 files, which take the longest. On 2 cores expect about 22 minutes, on 16 about 5; this
machine has $(nproc). Later builds compile only what changed.
EOF
# On a terminal cargo's own bar shows the progress.
[ -t 2 ] && exec cargo "$@"

# Elsewhere the bar is read here, and told in a line every half minute.
progress() {
    local line bar="starting" next=30
    while :; do
        if IFS= read -r -t 5 line; then
            case $line in
            *'] '[0-9]*/[0-9]*': '*) bar=${line#*] } ;;
            ?*) printf '%s\n' "$line" ;;
            esac
        elif [ $? -le 128 ]; then
            break
        fi
        if [ "$SECONDS" -ge "$next" ]; then
            printf '    … %d:%02d min, %s\n' $((SECONDS / 60)) $((SECONDS % 60)) "$bar"
            next=$((SECONDS + 30))
        fi
    done
}
SECONDS=0
CARGO_TERM_PROGRESS_WHEN=always CARGO_TERM_PROGRESS_WIDTH=120 cargo "$@" 2>&1 |
    stdbuf -o0 tr '\r' '\n' | stdbuf -oL sed -u 's/\x1b\[[0-9;]*[A-Za-z]//g; s/ *$//' | progress
