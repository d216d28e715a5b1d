#!/usr/bin/env bash
# Makes the virtual environment of the Python checks, once for each state of requirements.txt, and prints the path of its
# python. ANABRANCH_CACHE says where caches go.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
environment=${ANABRANCH_CACHE:-$HOME/.cache/anabranch}/python
python=$environment/bin/python
locked=$(sha256sum <"$here/requirements.txt" | cut -c1-64)

if [ "$(cat "$environment/locked" 2>/dev/null)" != "$locked" ]; then
    if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
        echo "error: python3 or its venv module is missing: run scripts/install-packages.sh test, or install python3 and python3-venv" >&2
        exit 1
    fi
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
        echo "error: expected Python 3.11 or newer, which the locked packages need, found $(python3 --version)" >&2
        exit 1
    }
    echo "making the Python environment in $environment" >&2
    mkdir -p "${environment%/*}"
    made=$(mktemp -d "$environment.XXXXXX")
    trap 'rm -rf "$made"' EXIT
    python3 -m venv --clear "$made" >&2
    "$made/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
        -r "$here/requirements.txt" >&2
    echo "$locked" >"$made/locked"
    rm -rf "$environment"
    # Whoever made it first has made it.
    mv -T "$made" "$environment" 2>/dev/null || [ "$(cat "$environment/locked" 2>/dev/null)" = "$locked" ]
fi
echo "$python"
