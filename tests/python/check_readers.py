"""Reads a run's segments with DuckDB, pyarrow and Polars: the same rows and values, and scans that skip what they can.

usage: check_readers.py FOLDER, the run's Parquet folder
"""

import json
import math
import pathlib
import sys

import duckdb
import polars
import pyarrow.dataset
import pyarrow.parquet

TABLES = ("events", "groups", "samples", "publications", "steps")
LISTS = {"events": "enablers", "groups": "prompt", "samples": "spans", "steps": "groups"}


def plain(value):
    """A value with all that the libraries write differently made equal."""
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, polars.Series):
        return [plain(inner) for inner in value.to_list()]
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    if hasattr(value, "timestamp"):
        return round(value.timestamp() * 1000)
    return value


def rows_of_manifests(folder):
    """How many rows the manifests say that each table has."""
    rows = dict.fromkeys(TABLES, 0)
    for manifest in sorted((folder / "manifest").glob("*.json")):
        for file in json.loads(manifest.read_text())["manifest"]["files"]:
            rows[file["table"]] += file["rows"]
    return rows


def check_values(folder):
    """All three read the same of every table."""
    manifests = rows_of_manifests(folder)
    duck = duckdb.connect()
    duck.execute("SET TimeZone = 'UTC'")
    for table in TABLES:
        files = str(folder / table / "*.parquet")
        order = "seq, sample" if table == "samples" else "seq"
        found = duck.execute(f"SELECT * FROM '{files}' ORDER BY {order}")
        names = [column[0] for column in found.description]
        by_duckdb = [dict(zip(names, plain(row))) for row in found.fetchall()]
        by_polars = [plain(row) for row in polars.read_parquet(files).to_dicts()]
        arrow = [pyarrow.parquet.read_table(path) for path in sorted((folder / table).glob("*.parquet"))]
        by_pyarrow = [plain(row) for part in arrow for row in part.to_pylist()]
        counts = {len(by_duckdb), len(by_polars), len(by_pyarrow), manifests[table]}
        assert len(counts) == 1 and counts != {0}, f"{table}: rows {counts}"
        for other, rows in {"Polars": by_polars, "pyarrow": by_pyarrow}.items():
            for duckdbs, others in zip(by_duckdb, rows):
                assert duckdbs == others, f"{table}: DuckDB and {other} differ:\n{duckdbs}\n{others}"
        if table in LISTS:
            assert any(row[LISTS[table]] for row in by_duckdb), f"{table}: no {LISTS[table]} at all"
        print(f"{table}: {len(by_duckdb)} rows, {len(names)} columns, the same in DuckDB, pyarrow and Polars")


def check_pruning(folder):
    """Rows are sorted by seq, statistics say so, and a scan for one seq touches one row group of all files."""
    for table in TABLES:
        last = -1
        for path in sorted((folder / table).glob("*.parquet")):
            metadata = pyarrow.parquet.ParquetFile(path).metadata
            for group in range(metadata.num_row_groups):
                place = metadata.row_group(group)
                sorting = place.sorting_columns
                assert sorting and sorting[0].column_index == 0 and not sorting[0].descending, f"{path}: {sorting}"
                seq = place.column(0)
                assert seq.path_in_schema == "seq" and seq.is_stats_set and seq.statistics.has_min_max, path
                assert seq.has_column_index and seq.has_offset_index, f"{path} has no page index"
                assert seq.statistics.min > last or table == "samples", f"{path}: row groups overlap"
                assert seq.statistics.min >= last, f"{path}: row groups overlap"
                last = seq.statistics.max
    dataset = pyarrow.dataset.dataset(folder / "events", format="parquet")
    fragments = list(dataset.get_fragments())
    assert len(fragments) > 1, "a recording of one segment proves nothing"
    last = max(fragment.metadata.row_group(0).column(0).statistics.max for fragment in fragments)
    for seq in (0, last // 2, last):
        wanted = pyarrow.dataset.field("seq") == seq
        scanned = sum(len(fragment.subset(wanted).row_groups) for fragment in fragments)
        assert scanned == 1, f"a scan for seq {seq} reads {scanned} row groups"
        rows = dataset.to_table(filter=wanted, columns=["seq"]).column("seq").to_pylist()
        assert rows == [seq], rows
    nothing = sum(len(fragment.subset(pyarrow.dataset.field("seq") > last).row_groups) for fragment in fragments)
    assert nothing == 0, "a scan for what comes after the end reads row groups"
    groups = str(folder / "groups" / "*.parquet")
    for (name,) in duckdb.sql(f"SELECT group_id FROM '{groups}' ORDER BY seq LIMIT 1").fetchall():
        probes = duckdb.sql(f"SELECT bloom_filter_excludes FROM parquet_bloom_probe('{groups}', 'group_id', '{name}')")
        excluded = [excludes for (excludes,) in probes.fetchall()]
        assert excluded.count(False) == 1 and len(excluded) > 1, f"the Bloom filters of groups exclude {name}: {excluded}"
    print(f"events: a scan for one seq reads 1 of {len(fragments)} row groups")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    check_values(pathlib.Path(sys.argv[1]))
    check_pruning(pathlib.Path(sys.argv[1]))
