#!/usr/bin/env bash
# Installs the system packages that the build, the demo or the tests need and this machine lacks, and says so.
# Usage: install-packages.sh demo|test
set -euo pipefail

if ! command -v cargo >/dev/null; then
    echo "error: cargo is not on the PATH: install Rust $(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml) with rustup (https://rustup.rs)" >&2
    exit 1
fi

missing=()
need() { # PACKAGE TEST-COMMAND…: the package is missing where the command fails
    local package=$1
    shift
    "$@" >/dev/null 2>&1 || missing+=("$package")
}
library() { ldconfig -p | grep -q "$1"; }
any_file() { compgen -G "$1" >/dev/null; }
# Not libclang-cpp, which Mesa brings along: bindgen loads the C interface.
libclang() { any_file '/usr/lib*/llvm-*/lib/libclang.so*' || any_file '/usr/lib*/llvm-*/lib/libclang-[0-9]*.so*'; }

need g++ command -v g++
need libclang-dev libclang
need libvulkan1 library 'libvulkan\.so\.1'
need mesa-vulkan-drivers any_file '/usr/share/vulkan/icd.d/*.json'
if [ "${1:-}" = test ]; then
    need python3-venv python3 -c 'import ensurepip, venv'
    need chromium command -v chromium
    need fonts-dejavu-core any_file '/usr/share/fonts/truetype/dejavu/*.ttf'
    need strace command -v strace
fi
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null && as_root=(sudo)
fi
if ! command -v apt-get >/dev/null || { [ "$(id -u)" -ne 0 ] && [ ${#as_root[@]} -eq 0 ]; }; then
    echo "error: these packages are missing, and this script cannot install them (it needs apt-get, and root or sudo): ${missing[*]}" >&2
    echo "       Install them and run the command again. These are Debian's names for a C++ compiler, libclang, the Vulkan loader and Mesa's Vulkan drivers." >&2
    exit 1
fi
echo "installing system packages: ${missing[*]}"
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
echo "installed: ${missing[*]}"
