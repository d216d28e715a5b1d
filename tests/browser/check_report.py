"""Opens reports in a headless Chromium: nothing fails, nothing is fetched, everything is there and fits.

usage: check_report.py PROGRAM RUN…, the built `anabranch` and the runs to draw
"""

import json
import pathlib
import subprocess
import sys
import tempfile

from chromium import Chromium

HEADINGS = ["Run report", "Summary", "Timeline", "Version gaps", "Dispositions", "Reward and loss", "Learner wait"]
FIGURES = ["Engines", "Buffer", "Learner", "Publications", "Gap of consumed groups", "Gap of excluded groups"]
FIGURES += ["Groups settled", "Reward", "Loss", "Wait for a batch"]
WINDOWS = [(1280, 900), (390, 844)]
# The tightest contrast that WCAG 2.2 allows text of this size, and graphics.
TEXT, GRAPHICS = 4.5, 3.0

# For each class, its colour as drawn, and the colours of text and of the card under it.
COLOURS = """(() => {
    const parse = colour => colour.match(/[\\d.]+/g).slice(0, 3).map(Number);
    const card = parse(getComputedStyle(document.querySelector('section')).backgroundColor);
    const text = ['dd', 'dt', 'section > p', '.y', '.legend'].map(where =>
        [where, parse(getComputedStyle(document.querySelector(where)).color)]);
    const drawn = [...document.querySelectorAll('.legend i:not(.level):not(.published):not(.band)')].map(i =>
        [i.className, parse(getComputedStyle(i).color)]);
    return {card, text, drawn};
})()"""


def luminance(colour):
    """Relative luminance, as WCAG defines it."""
    parts = [part / 255 for part in colour]
    parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(one, other):
    """Contrast of two colours, from 1 to 21."""
    lighter, darker = sorted([luminance(one), luminance(other)], reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def problems(events, path):
    """What went wrong while a page loaded, and what it fetched beside itself."""
    found = []
    for event in events:
        method, params = event.get("method"), event.get("params", {})
        if method in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
            found.append(f"{method}: {json.dumps(params)[:300]}")
        if method == "Network.requestWillBeSent":
            url = params["request"]["url"]
            if url != path.as_uri() and not url.startswith("data:"):
                found.append(f"it fetches {url}")
    return found


def thousands(number):
    return f"{number:,}"


def check_content(browser, audit):
    """Headings, figures and numbers stand in the page."""
    headings = browser.evaluate("[...document.querySelectorAll('h1, h2')].map(h => h.textContent)")
    assert headings == HEADINGS, headings
    figures = browser.evaluate("[...document.querySelectorAll('figcaption b')].map(b => b.textContent)")
    assert figures == FIGURES, figures
    drawn = browser.evaluate("[...document.querySelectorAll('figure svg')].map(svg => svg.getBoundingClientRect().height)")
    assert len(drawn) == len(FIGURES) and all(height > 20 for height in drawn), drawn
    tiles = browser.evaluate(
        "Object.fromEntries([...document.querySelectorAll('.tiles > div')].map(tile =>"
        " [tile.querySelector('dt').textContent, tile.querySelector('dd').firstChild.textContent]))"
    )
    gaps = {name: sum(int(gap) * count for gap, count in series["histogram"].items()) / sum(series["histogram"].values())
            for name, series in audit["gap"].items() if name in ("consumed", "excluded")}
    expected = {
        "Training steps": thousands(audit["learner"]["steps"]),
        "Groups consumed": thousands(audit["groups"]["consumed"]),
        "Groups excluded": thousands(sum(audit["groups"]["excluded"].values())),
        "Gap, consumed": f"{gaps['consumed']:.2f}",
        "Gap, excluded": f"{gaps['excluded']:.2f}",
    }
    for name, value in expected.items():
        assert tiles.get(name) == value, f"{name}: {tiles.get(name)}, the audit says {value}"


def check_looks(browser, width):
    """Nothing sticks out, and everything can be told from what is behind it."""
    wide = browser.evaluate("document.documentElement.scrollWidth")
    assert wide <= width, f"the page is {wide} px wide in a window of {width}"
    out = browser.evaluate(
        "[...document.querySelectorAll('h1,h2,p,dt,dd,li,svg,figcaption,.x span,.gaps span,.totals span')].filter(e => {"
        " const box = e.getBoundingClientRect(); return box.right > innerWidth + 0.5 || box.left < -0.5; })"
        ".map(e => e.outerHTML.slice(0, 120))"
    )
    assert not out, f"outside a window of {width} px: {out[:3]}"
    colours = browser.evaluate(COLOURS)
    for least, kind in ((TEXT, "text"), (GRAPHICS, "drawn")):
        for name, colour in colours[kind]:
            reached = contrast(colour, colours["card"])
            assert reached >= least, f"{name} {colour} on {colours['card']}: contrast {reached:.2f}, expected {least}"
    return colours["card"]


def main(program, runs):
    with tempfile.TemporaryDirectory() as folder, Chromium() as browser:
        for index, run in enumerate(runs):
            path = pathlib.Path(folder).resolve() / f"{index}.html"
            command = [program, "report", run, "-o", path, "--json"]
            audit = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["audit"]
            assert path.stat().st_size < 1_000_000, f"{run}: the report has {path.stat().st_size} bytes"
            for width, height in WINDOWS:
                cards = []
                for dark in (False, True):
                    wrong = problems(browser.open(path, width, height, dark), path)
                    assert not wrong, f"{run}: {wrong}"
                    check_content(browser, audit)
                    cards.append(luminance(check_looks(browser, width)))
                assert cards[0] > 0.8 and cards[1] < 0.1, f"light and dark cards have luminance {cards}"
            print(f"{run}: {len(HEADINGS)} headings, {len(FIGURES)} figures, numbers as audited; fits 1280 and 390 px, light and dark")
        # A page that does fail must be seen to.
        broken = pathlib.Path(folder).resolve() / "broken.html"
        broken.write_text("<!doctype html><title>x</title><script>nothing()</script><img src='gone.png'>")
        wrong = " ".join(problems(browser.open(broken, *WINDOWS[0]), broken))
        assert "exceptionThrown" in wrong and "gone.png" in wrong, f"a broken page passes: {wrong}"


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2:])
