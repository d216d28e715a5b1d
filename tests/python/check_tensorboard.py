"""Reads event files with TensorBoard's own reader and compares them with what was written.

usage: check_tensorboard.py PROGRAM, the built example `tensorboard_events` of anabranch-metrics
"""

import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader


def read(directory):
    """All scalars of a directory: for each tag the value at each step, in the order they come."""
    events = EventAccumulator(str(directory), size_guidance={"scalars": 0})
    events.Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def single(value):
    """The value as a 32-bit float, which is what the files hold."""
    return struct.unpack("f", struct.pack("f", value))[0]


def main(program):
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        printed = subprocess.run([program, str(directory)], check=True, capture_output=True, text=True).stdout
        expected = json.loads(printed)["tags"]
        found = read(directory / "run")
        for tag, values in expected.items():
            values = sorted((int(step), single(value)) for step, value in values.items())
            assert values, f"{tag}: the program expects no value, so that this would compare nothing"
            assert found[tag] == values, f"{tag}:\n  read    {found[tag]}\n  written {values}"
        steps = [step for step, _ in found["anabranch_loss"]]
        assert steps == list(range(1, 13)), f"a resumed writer replaces what it writes again: {steps}"

        own = read(directory / "own")
        assert own["pi"] == [(3, single(math.pi))], own
        assert math.isnan(own["nan"][0][1]), own

        files = sorted((directory / "run").iterdir())
        assert len(files) == 2, files
        first = [event for event in EventFileLoader(str(files[0])).Load()]
        assert first[0].file_version == "brain.Event:2", first[0]
        assert all(isinstance(event, Event) and event.wall_time > 1.6e9 for event in first)

        # A writer killed in the middle of a record: all records before it are read.
        whole = read(directory / "run")
        with files[1].open("r+b") as file:
            file.truncate(files[1].stat().st_size - 5)
        torn = read(directory / "run")
        assert torn["anabranch_loss"] == whole["anabranch_loss"][:-1], "the torn record goes, nothing else"
        print(f"TensorBoard's reader agrees: {len(found)} tags, {len(expected)} of them compared at {len(steps)} steps")


if __name__ == "__main__":
    main(*sys.argv[1:])
