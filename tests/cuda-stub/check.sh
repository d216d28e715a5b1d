#!/bin/bash
# Compiles every kernel for sm_90a through the stub driver, then assembles each module and prints its registers and spills.
# Fails on a kernel that does not compile, on any spill, and when there are not as many modules as the example launches.
# A compile check only: nothing executes. Last line: "N passed, 0 failed".
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
env_file=$("$here/setup.sh")

# Built before the environment is sourced: the stub is for the program, not for cargo.
cd "$root"
program=$(cargo build --quiet --locked --workspace --example compile_all --message-format=json |
    sed -n 's/.*"executable":"\([^"]*compile_all[^"]*\)".*/\1/p' | tail -n 1)
[ -n "$program" ] || { echo "cuda-stub: cargo built no compile_all" >&2; exit 1; }

dump=$(mktemp -d)
trap 'rm -rf "$dump"' EXIT
# shellcheck disable=SC1090
source "$env_file"
# CubeCL keeps compiled PTX in a cache; a cached kernel would not pass through NVRTC again.
expected=$(cd "$dump" && HOME="$dump" XDG_CACHE_HOME="$dump/cache" STUBCUDA_DUMP="$dump" "$program" cuda | tee /dev/stderr |
    sed -n 's/^distinct kernels: //p')
[ -n "$expected" ] || { echo "cuda-stub: compile_all did not finish" >&2; exit 1; }

passed=0 failed=0
printf '%-11s %9s %7s %7s  %s\n' module registers spills shared kernel
for ptx in "$dump"/module*.ptx; do
    [ -e "$ptx" ] || break
    name=$(sed -n 's/.*\.entry \([A-Za-z0-9_]*\).*/\1/p' "$ptx" | head -n 1)
    if ! report=$("$PTXAS" -arch=sm_90a -v -o /dev/null "$ptx" 2>&1); then
        echo "$report"
        failed=$((failed + 1))
        continue
    fi
    registers=$(sed -n 's/.*Used \([0-9]*\) registers.*/\1/p' <<<"$report")
    spills=$(sed -n 's/.* \([0-9]*\) bytes spill stores, \([0-9]*\) bytes spill loads.*/\1+\2/p' <<<"$report")
    shared=$(sed -n 's/.* \([0-9]*\) bytes smem.*/\1/p' <<<"$report")
    printf '%-11s %9s %7s %7s  %s\n' "$(basename "$ptx" .ptx)" "$registers" "$spills" "${shared:-0}" "$name"
    if [ "$spills" = 0+0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done
if [ $((passed + failed)) -ne "$expected" ]; then
    echo "cuda-stub: $((passed + failed)) modules for $expected kernels" >&2
    failed=$((failed + 1))
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
