"""Takes pictures of a run's report, as a desktop in light and a phone in dark show it.

usage: screenshots.py PROGRAM RUN FOLDER, the built `anabranch`, the run to draw, and where the pictures go
"""

import pathlib
import subprocess
import sys
import tempfile

from chromium import Chromium

# Of a page all of which would be too much to look at: from its top to the end of the section so headed.
LAST = "Version gaps"


def main(program, run, folder):
    with tempfile.TemporaryDirectory() as temporary, Chromium() as browser:
        page = pathlib.Path(temporary) / "report.html"
        subprocess.run([program, "report", run, "-o", page], check=True, stdout=subprocess.DEVNULL)
        for name, width, height, dark in (("report", 1280, 900, False), ("report-phone-dark", 390, 844, True)):
            browser.open(page, width, height, dark)
            end = browser.evaluate(
                f"[...document.querySelectorAll('section')].find(s => s.querySelector('h2').textContent === '{LAST}')"
                ".getBoundingClientRect().bottom + scrollY + 16"
            )
            path = pathlib.Path(folder) / f"{name}.png"
            browser.screenshot(path, clip=[0, 0, width, end])
            print(f"{path}: {path.stat().st_size // 1000} kB")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
