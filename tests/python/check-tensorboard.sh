#!/usr/bin/env bash
# Event files as TensorBoard's own reader sees them.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
python=$("$here/setup.sh")
cargo build --locked --quiet --workspace --example tensorboard_events
"$python" "$here/check_tensorboard.py" "${CARGO_TARGET_DIR:-target}/debug/examples/tensorboard_events"
