#!/usr/bin/env bash
# Everything that CI checks. ANABRANCH_SKIP=cuda-stub,… leaves checks out by name; they are counted in the closing line.
set -uo pipefail

# Vulkan asks for it; any directory silences the message.
export XDG_RUNTIME_DIR=${XDG_RUNTIME_DIR:-${TMPDIR:-/tmp}}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0 failed=0 skipped=0 broken=()

check() { # NAME COMMAND…
    local name=$1
    shift
    if [[ ",${ANABRANCH_SKIP:-}," == *",$name,"* ]]; then
        echo "== $name: skipped (ANABRANCH_SKIP)"
        skipped=$((skipped + 1))
        return
    fi
    echo "== $name: $*"
    local begun=$SECONDS
    if "$@" 2>&1 | tee "$log"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        broken+=("$name")
    fi
    # A test runner counts its own tests beside the check itself.
    passed=$((passed + $(sed -n 's/^test result: .* \([0-9]*\) passed; .*/\1/p' "$log" | paste -sd+ | sed 's/^$/0/')))
    failed=$((failed + $(sed -n 's/^test result: .* \([0-9]*\) failed; .*/\1/p' "$log" | paste -sd+ | sed 's/^$/0/')))
    echo "== $name: $((SECONDS - begun)) s"
}

check fmt cargo fmt --all --check
check dependencies scripts/check-dependencies.py
check clippy scripts/build.sh clippy --locked --workspace --all-targets -- -D warnings
check doc env RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps
check prose scripts/check-prose.sh
check test cargo test --locked --workspace --no-fail-fast
# Under --workspace, so that nothing is built again with other features.
check strace cargo test --locked --workspace --test log -- --ignored power_loss
check failpoints cargo test --locked --workspace --features anabranch-log/failpoints,anabranch-parquet/failpoints --test failpoints
check features scripts/check-features.sh
check packages scripts/check-packages.sh
check datasets "${CARGO_TARGET_DIR:-target}/debug/generate_datasets" --check
check cuda-stub tests/cuda-stub/check.sh
check tensorboard tests/python/check-tensorboard.sh
check parquet tests/python/check-parquet.sh
check browser tests/browser/check.sh
check duckdb tests/python/check-duckdb.sh
check demo scripts/check-demo.sh

[ ${#broken[@]} -eq 0 ] || echo "failed checks: ${broken[*]}"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
