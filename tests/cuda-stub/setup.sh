#!/bin/bash
# Builds a compile-only CUDA environment, with no GPU and no toolkit, and prints the file to source.
# Usage: setup.sh [DIR]. Safe to repeat: what is there stays.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=${1:-${ANABRANCH_CACHE:-$HOME/.cache/anabranch}/cuda-stub}

missing=()
command -v gcc >/dev/null || missing+=("gcc (Debian: apt-get install gcc)")
command -v python3 >/dev/null || missing+=("python3 (Debian: apt-get install python3)")
if command -v python3 >/dev/null && ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
    missing+=("python3-venv (Debian: apt-get install python3-venv)")
fi
if [ ${#missing[@]} -gt 0 ]; then
    printf 'cuda-stub: missing %s\n' "${missing[@]}" >&2
    exit 1
fi

mkdir -p "$dir/lib" "$dir/cuda/include"
packages=(nvidia-cuda-nvrtc-cu12==12.9.86 nvidia-cuda-runtime-cu12==12.9.79 nvidia-cuda-cccl-cu12==12.9.27 nvidia-cuda-nvcc-cu12==12.9.86)
stamp="$dir/venv/installed"
if [ "$(cat "$stamp" 2>/dev/null)" != "${packages[*]}" ]; then
    [ -x "$dir/venv/bin/pip" ] || python3 -m venv --clear "$dir/venv"
    "$dir/venv/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}" >&2
    echo "${packages[*]}" > "$stamp"
fi

nvidia=$(echo "$dir"/venv/lib/python3*/site-packages/nvidia)
for part in cuda_runtime cuda_nvrtc cuda_nvcc; do
    if [ -d "$nvidia/$part/include" ]; then cp -rsf "$nvidia/$part/include/." "$dir/cuda/include/"; fi
done
ln -sfn "$nvidia/cuda_cccl/include" "$dir/cuda/include/cccl"
# The file must be libcuda.so, not libcuda.so.1: NVRTC opens the latter by itself and crashes on a stub.
gcc -shared -fPIC -O1 -w -Wl,-soname,libstubcuda.so -o "$dir/lib/libcuda.so" "$here/stub_driver.c"
cat > "$dir/env.sh" <<X
export CUDA_PATH="$dir/cuda" LD_LIBRARY_PATH="$dir/lib:$nvidia/cuda_nvrtc/lib" PTXAS="$nvidia/cuda_nvcc/bin/ptxas"
X
echo "$dir/env.sh"
