#!/usr/bin/env bash
# Packages every crate that may be published, and compiles all of them from nothing but their packaged files.
#
# `cargo package` would compile each crate alone, each time with other features of its dependencies: RocksDB's C++ and
# CubeCL several times over. Here the unpacked packages take the place of crates/ in a copy of the workspace, so that the
# features, and with them the compiled dependencies, are those that the other checks have built.
set -euo pipefail

cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
copy=$target/packaged-workspace
mapfile -t crates < <(cargo metadata --locked --no-deps --format-version 1 | python3 -c '
import json, sys
print(*sorted(p["name"] for p in json.load(sys.stdin)["packages"] if p["publish"] is None), sep="\n")')

# A dirty working tree is packaged too: the check is of the files, not of their commit.
rm -rf "$target/package"
cargo package --locked --allow-dirty --no-verify --quiet "${crates[@]/#/--package=}"

rm -rf "$copy"
mkdir -p "$copy/crates"
cp -r Cargo.toml Cargo.lock rust-toolchain.toml .cargo README.md docs examples tests benches fuzz "$copy/"
patches=()
for crate in "${crates[@]}"; do
    packages=("$target/package/$crate"-[0-9]*.crate)
    [ -f "${packages[0]}" ] || { echo "error: expected a package of $crate in $target/package, found none" >&2; exit 1; }
    mkdir "$copy/crates/$crate"
    tar --extract --gzip --strip-components=1 --file="${packages[0]}" --directory="$copy/crates/$crate"
    for file in README.md LICENSE-APACHE LICENSE-MIT; do
        [ -s "$copy/crates/$crate/$file" ] || { echo "error: expected $file in the package of $crate, found none" >&2; exit 1; }
    done
    if grep -q '^\[dev-dependencies\.anabranch' "$copy/crates/$crate/Cargo.toml"; then
        echo "error: the package of $crate has a dev-dependency on one of our crates: name it by its path alone" >&2
        exit 1
    fi
    if grep -nE '!\[[^]]*\]\((\.|docs/|[^h])|\]\((\.\./|docs/|benches/|datasets/)' "$copy/crates/$crate/README.md"; then
        echo "error: the README of $crate names files that its package does not have, in the lines above" >&2
        exit 1
    fi
    patches+=("$crate = { path = \"crates/$crate\" }")
done
# What is not published comes along as it is: examples and benches need it.
for folder in crates/*; do
    [ -d "$copy/$folder" ] || cp -r "$folder" "$copy/crates/"
done
# A package names the others by version; this is what they would get from the registry.
{ echo; echo '[patch.crates-io]'; printf '%s\n' "${patches[@]}"; } >>"$copy/Cargo.toml"

cd "$copy"
export CARGO_TARGET_DIR=$target
# The whole workspace, so that examples decide about the features of dependencies as they do elsewhere.
cargo check --offline --workspace
echo "${#crates[@]} packages compile from their own files"

# The fuzz targets need nightly to run, but must compile. They are a workspace of their own, with a profile of its own;
# as a member of this one they find RocksDB compiled.
sed -i '/^\[workspace\]$/d' fuzz/Cargo.toml
sed -i 's/^exclude = \["fuzz"\]$//; s/^members = \[/members = ["fuzz", /' Cargo.toml
cargo check --workspace
echo "the fuzz targets compile"
