#!/usr/bin/env bash
# slow-sync.sh MICROSECONDS COMMAND…: runs a command on a disk whose syncs take so much longer. How much producers gain by
# sharing a sync depends on what it takes: a tenth of a millisecond on some machines, several on many.
set -euo pipefail
library=$(mktemp --suffix .so)
trap 'rm -f "$library"' EXIT
cc -shared -fPIC -O1 -o "$library" "$(dirname "$0")/slow-sync.c" -ldl
export ANABRANCH_SYNC_US=$1
shift
LD_PRELOAD=$library "$@"
