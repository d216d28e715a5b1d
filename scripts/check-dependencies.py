#!/usr/bin/env python3
"""Checks licences and Rust versions of everything that Cargo.lock names, without a network.

Licences: each dependency has one that `deny.toml` allows. Rust versions: no dependency of a published crate asks for more
than the workspace's `rust-version`, and that is no higher than one of them asks for.
"""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def metadata():
    """All packages of the lock file, for every platform and every feature."""
    command = ["cargo", "metadata", "--locked", "--all-features", "--format-version", "1"]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)


def allowed(expression, licences):
    """Whether an SPDX expression can be met with these licences; `/` is the old way to write `OR`."""
    tokens = re.findall(r"\(|\)|[^\s()]+", expression.replace("/", " OR "))

    def alternatives():
        met = conjunction()
        while tokens and tokens[0] == "OR":
            tokens.pop(0)
            met = conjunction() or met
        return met

    def conjunction():
        met = single()
        while tokens and tokens[0] == "AND":
            tokens.pop(0)
            met = single() and met
        return met

    def single():
        if not tokens:
            raise ValueError(expression)
        token = tokens.pop(0)
        if token == "(":
            met = alternatives()
            if not tokens or tokens.pop(0) != ")":
                raise ValueError(expression)
            return met
        if tokens and tokens[0] == "WITH":
            token = f"{token} WITH {tokens[1]}"
            del tokens[:2]
        return token in licences

    met = alternatives()
    if tokens:
        raise ValueError(expression)
    return met


def wrong_licences(packages):
    rules = tomllib.loads((ROOT / "deny.toml").read_text())["licenses"]
    extra = {rule["crate"]: rule["allow"] for rule in rules["exceptions"]}
    for package in packages:
        name = f"{package['name']} {package['version']}"
        licences = {*rules["allow"], *extra.get(package["name"], [])}
        try:
            if not allowed(package["license"] or "", licences):
                yield f"{name}: expected a licence that deny.toml allows, found {package['license']}"
        except ValueError:
            yield f"{name}: expected an SPDX licence expression, found {package['license']!r}"


def shipped(meta):
    """Ids of the packages that a published crate needs to be built, on any platform: no dev-dependencies."""
    nodes = {node["id"]: node for node in meta["resolve"]["nodes"]}
    members = set(meta["workspace_members"])
    queue = [p["id"] for p in meta["packages"] if p["id"] in members and p["publish"] is None]
    found = set(queue)
    while queue:
        for dependency in nodes[queue.pop()]["deps"]:
            needed = any(kind["kind"] != "dev" for kind in dependency["dep_kinds"])
            if needed and dependency["pkg"] not in found:
                found.add(dependency["pkg"])
                queue.append(dependency["pkg"])
    return found - members


def version(text):
    return tuple(int(part) for part in [*text.split("."), "0"][:2])


def wrong_rust_version(packages):
    stated = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["rust-version"]
    asked = [(version(p["rust_version"]), p) for p in packages if p["rust_version"]]
    highest = max(asked, key=lambda pair: pair[0])
    for needed, package in asked:
        if needed > version(stated):
            yield (f"{package['name']} {package['version']} needs Rust {package['rust_version']}, found "
                   f"rust-version = \"{stated}\" in Cargo.toml: raise it, or lock an older {package['name']}")
    if highest[0] < version(stated):
        package = highest[1]
        yield (f"rust-version = \"{stated}\" in Cargo.toml is higher than any dependency needs (most: {package['name']} "
               f"{package['version']}, {package['rust_version']}): lower it if clippy's incompatible_msrv allows that")


def main():
    meta = metadata()
    members = set(meta["workspace_members"])
    foreign = [package for package in meta["packages"] if package["id"] not in members]
    needed = shipped(meta)
    problems = [
        *wrong_licences(foreign),
        *wrong_rust_version([package for package in foreign if package["id"] in needed]),
    ]
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    if not problems:
        print(f"{len(foreign)} dependencies have allowed licences; the {len(needed)} that are shipped build on the stated Rust")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
