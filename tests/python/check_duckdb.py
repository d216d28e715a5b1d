"""Reads sealed segments with DuckDB: whole after every kill of the process that seals, and in the end the log, once.

usage: check_duckdb.py PROGRAM, the built example `segments` of anabranch-parquet
"""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import duckdb

KILLS = int(os.environ.get("ANABRANCH_KILLS", "25"))


def sealed_files(folder, table):
    """The files of a table that manifests name: what no manifest names does not exist."""
    manifests = sorted((folder / "manifest").glob("*.json"))
    numbers = [int(path.stem) for path in manifests]
    assert numbers == list(range(1, len(numbers) + 1)), f"manifests are numbered without gaps: {numbers}"
    named = [json.loads(path.read_text())["manifest"]["files"] for path in manifests]
    return [str(folder / file["path"]) for files in named for file in files if file["table"] == table]


def read(files, columns):
    if not files:
        return []
    return duckdb.sql(f"SELECT {columns} FROM read_parquet({files!r}) ORDER BY ALL").fetchall()


def check(folder, expected, said):
    """What is sealed is the beginning of the log, each row once, as far as was said at least."""
    events = read(sealed_files(folder, "events"), "seq, kind, group_id, at_ns")
    assert [list(row) for row in events] == expected["events"][: len(events)], "the events are those of the log, once"
    assert len(events) > said, f"event {said} was sealed, DuckDB finds {len(events)} events"
    groups = read(sealed_files(folder, "groups"), "seq, group_id, samples, generated")
    whole = [row for row in expected["groups"] if row[0] < len(events)]
    assert [list(row) for row in groups] == whole, "the groups are those completed by the sealed events, once"
    columns = "seq, sample, len(tokens), list_sum(tokens), list_sum(logprobs::DOUBLE[])"
    samples = read(sealed_files(folder, "samples"), columns)
    whole = [row for row in expected["samples"] if row[0] < len(events)]
    assert [list(row[:4]) for row in samples] == [row[:4] for row in whole], "the samples are theirs, once"
    for found, row in zip(samples, whole):
        assert abs((found[4] or 0.0) - row[4]) < 1e-9, f"log-probs of {row[:2]}: {found[4]}, not {row[4]}"
    return len(events)


def main(program):
    seed = int(os.environ.get("ANABRANCH_SEED", "11"))
    draw = random.Random(seed)
    expected = json.loads(subprocess.run([program, "--rows"], check=True, capture_output=True, text=True).stdout)
    assert len(expected["events"]) > 200 and len(expected["samples"]) > 60, "there is something to compare"
    with tempfile.TemporaryDirectory() as directory:
        folder = pathlib.Path(directory) / "parquet"
        kills, began, said, progress = 0, 0, -1, set()
        while kills < KILLS:
            began += 1
            process = subprocess.Popen([program, str(folder)], stdout=subprocess.PIPE, text=True)
            lines = draw.randrange(6)
            for _ in range(lines):
                line = process.stdout.readline()
                said = int(line) if line else said
            time.sleep(draw.random() * 0.02)
            process.kill()
            for line in process.stdout:
                # A last line may be cut.
                said = int(line) if line.endswith("\n") else said
            killed = process.wait() != 0
            kills += killed
            progress.add(check(folder, expected, said) if folder.exists() else 0)
            if not killed:
                # It got to its end: another run begins.
                folder = pathlib.Path(directory) / f"parquet-{began}"
                said = -1
        subprocess.run([program, str(folder)], check=True, capture_output=True)
        count = check(folder, expected, len(expected["events"]) - 1)
        for table in ["events", "groups", "samples"]:
            everything = {str(path) for path in (folder / table).glob("*.parquet")}
            assert everything == set(sealed_files(folder, table)), f"{table}: every file there is sealed"
        assert len(progress) > 5, f"the kills fell into few places: {sorted(progress)}, seed {seed}"
        print(f"DuckDB agrees after {kills} kills: {count} events, {len(expected['samples'])} samples")


if __name__ == "__main__":
    main(*sys.argv[1:])
