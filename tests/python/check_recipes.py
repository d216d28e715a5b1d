"""Runs the SQL recipes of docs/sql on a recorded run and compares their answers with those stored beside it.

usage: check_recipes.py FOLDER EXPECTED AUDIT [--update]

FOLDER is the run's Parquet folder, EXPECTED the folder of the answers, AUDIT what `anabranch audit --json` says of the
run: where both tell the same, they must agree. --update writes the answers instead of comparing them.
"""

import csv
import io
import itertools
import json
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
    """The recipe that must find nothing finds each kind of duplicate if there is one."""
    for table, what in {"groups": "completed", "steps": "trained", "publications": "published", "events": "event"}.items():
        connection = connect()
        connection.execute(f"CREATE TEMP TABLE doubled AS SELECT * FROM {table} UNION ALL (SELECT * FROM {table} LIMIT 1)")
        connection.execute(f"CREATE OR REPLACE TEMP VIEW {table} AS SELECT * FROM doubled")
        found = connection.execute(text).fetchall()
        assert [row[0] for row in found] == [what], f"a doubled row of {table} is found as {found}"


def check_audit(answers, audit):
    """The answers add up to what the audit says, which is computed from the events by other code."""
    rows = {name: list(csv.DictReader(io.StringIO(text))) for name, text in answers.items()}

    def total(name, column, **where):
        chosen = [row for row in rows[name] if all(row[key] == value for key, value in where.items())]
        return sum(float(row[column] or 0) for row in chosen)

    excluded = {reason: groups for reason, groups in audit["groups"]["excluded"].items() if reason != "filtered"}
    pairs = {"consumed": (total("dispositions", "settled", disposition="consumed"), audit["groups"]["consumed"])}
    for reason, groups in excluded.items():
        pairs[reason] = (total("dispositions", "settled", reason=reason), groups)
        pairs[f"{reason}, by bias"] = (total("exclusion_bias", "groups", disposition=reason), groups)
    pairs["leased"] = (total("conservation", "leased"), audit["groups"]["leased"])
    pairs["missing"] = (total("conservation", "missing"), 0)
    pairs["tokens consumed"] = (total("tokens_by_version", "tokens"), audit["tokens"]["consumed"])
    pairs["learner wait"] = (total("learner_wait", "waited_ms"), audit["learner"]["wait"]["total_ns"] / 1e6)
    pairs["pauses"] = (total("publications", "paused_ms"), audit["publications"]["pause"]["total_ns"] / 1e6)
    for part, column in {"consumed": "gap", "consumed_generation": "in_generation"}.items():
        histogram = audit["gap"][part]["histogram"]
        mean = sum(float(row[column]) * float(row["groups"]) for row in rows["gap_split"])
        pairs[f"gap, {column}"] = (mean, sum(int(gap) * groups for gap, groups in histogram.items()))
    for what, (answered, audited) in pairs.items():
        assert abs(answered - audited) <= 1e-3 * max(1, abs(audited)), f"{what}: {answered}, the audit says {audited}"
    print(f"{len(pairs)} sums as the audit has them")


def main(folder, expected, audit, update):
    expected = pathlib.Path(expected).resolve()
    audit = json.loads(pathlib.Path(audit).read_text())["audit"]
    os.chdir(folder)
    wrong, answers = 0, {}
    found = recipes()
    for name, text in found.items():
        path, answered = expected / f"{name}.csv", answer(text)
        answers[name] = answered
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
    check_audit(answers, audit)
    check_duplicates_are_found(found["duplicates"])
    assert not wrong, f"{wrong} recipes answer otherwise"


if __name__ == "__main__":
    arguments = [argument for argument in sys.argv[1:] if argument != "--update"]
    if len(arguments) != 3:
        sys.exit(__doc__)
    main(*arguments, update="--update" in sys.argv)
