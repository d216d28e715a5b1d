"""Runs the SQL recipes of docs/sql on a recorded run and compares their answers with those stored beside it.

usage: check_recipes.py FOLDER EXPECTED [--update]

FOLDER is the run's Parquet folder, EXPECTED the folder of the answers. --update writes them instead.
"""

import csv
import io
import itertools
import os
import pathlib
import sys

import duckdb

RECIPES = pathlib.Path(__file__).resolve().parents[2] / "docs" / "sql"


def recipes():
    """All recipes, each opening with a comment that says what it answers."""
    found = {path.stem: path.read_text() for path in sorted(RECIPES.glob("*.sql")) if path.stem != "views"}
    assert len(found) >= 10, f"{RECIPES} has {len(found)} recipes, expected at least 10"
    listed = (RECIPES / "README.md").read_text()
    for name, text in found.items():
        comment = " ".join(itertools.takewhile(lambda line: line.startswith("-- "), text.splitlines()))
        assert "?" in comment, f"{name}.sql does not open with its question"
        assert f"`{name}.sql`" in listed, f"{name}.sql is not in the table of {RECIPES / 'README.md'}"
    return found


def connect():
    """DuckDB with the views; the working directory is the run's Parquet folder."""
    connection = duckdb.connect()
    connection.execute((RECIPES / "views.sql").read_text())
    return connection


def answer(text):
    """What a recipe answers, as CSV."""
    result = connect().execute(text)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column[0] for column in result.description])
    writer.writerows(["" if value is None else value for value in row] for row in result.fetchall())
    return out.getvalue()


def check_duplicates_are_found(text):
    """The recipe that must find nothing finds each kind of duplicate where there is one."""
    for table, what in {"groups": "completed", "steps": "trained", "publications": "published", "events": "event"}.items():
        connection = connect()
        connection.execute(f"CREATE TEMP TABLE doubled AS SELECT * FROM {table} UNION ALL (SELECT * FROM {table} LIMIT 1)")
        connection.execute(f"CREATE OR REPLACE TEMP VIEW {table} AS SELECT * FROM doubled")
        found = connection.execute(text).fetchall()
        assert [row[0] for row in found] == [what], f"a doubled row of {table} is found as {found}"


def main(folder, expected, update):
    expected = pathlib.Path(expected).resolve()
    os.chdir(folder)
    wrong = 0
    found = recipes()
    for name, text in found.items():
        path, answered = expected / f"{name}.csv", answer(text)
        rows = len(answered.splitlines()) - 1
        if name == "duplicates":
            assert rows == 0, f"duplicates:\n{answered}"
        else:
            assert rows > 0, f"{name}.sql answers nothing"
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(answered)
            print(f"{name}: {rows} rows written")
        elif not path.exists() or path.read_text() != answered:
            wrong += 1
            print(f"{name}: another answer than {path}\n{answered}")
        else:
            print(f"{name}: {rows} rows, as expected")
    for path in expected.glob("*.csv"):
        assert path.stem in found, f"{path} belongs to no recipe"
    check_duplicates_are_found(found["duplicates"])
    assert not wrong, f"{wrong} recipes answer otherwise"


if __name__ == "__main__":
    arguments = [argument for argument in sys.argv[1:] if argument != "--update"]
    if len(arguments) != 2:
        sys.exit(__doc__)
    main(*arguments, update="--update" in sys.argv)
