"""A headless Chromium, spoken to over a pipe: the standard library is all it needs."""

import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

# A page that does not load in this time never will, on a machine however busy.
PATIENCE = 120


class Chromium:
    """One browser with one page, nothing of which outlives the `with` block."""

    def __enter__(self):
        program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        if program is None:
            raise SystemExit("error: chromium is missing: run scripts/install-packages.sh test, or install Debian's chromium")
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs, self.out = os.pipe()
        self.into, theirs_too = os.pipe()
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
        flags += ["--disable-component-update", "--disable-sync", "--hide-scrollbars", "--remote-debugging-pipe"]
        flags += [f"--user-data-dir={self.profile.name}", "about:blank"]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        # The browser reads commands from descriptor 3 and answers on 4.
        command = ["bash", "-c", f'exec "$@" 3<&{theirs} 4>&{theirs_too}', "chromium", program, *flags]
        self.process = subprocess.Popen(command, pass_fds=(theirs, theirs_too), **quiet)
        os.close(theirs)
        os.close(theirs_too)
        self.buffer, self.last, self.events = b"", 0, []
        self.session = None
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        os.close(self.out)
        os.close(self.into)
        self.profile.cleanup()

    def receive(self):
        """The next message."""
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.into], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise SystemExit("error: chromium does not answer")
            read = os.read(self.into, 1 << 16)
            if not read:
                raise SystemExit(f"error: chromium ended with status {self.process.wait()}")
            self.buffer += read
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **params):
        """The answer to one command; events that come before it are kept."""
        self.last += 1
        message = {"id": self.last, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.last:
                if "error" in answer:
                    raise SystemExit(f"error: {method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def open(self, path, width, height, dark=False, scale=1):
        """Loads a file as a window of this size sees it; gives the events that came with it."""
        mobile = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=mobile)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.events = []
        self.call("Page.navigate", url=pathlib.Path(path).resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self.receive())
        return self.events

    def evaluate(self, expression):
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise SystemExit(f"error: {expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def screenshot(self, to, whole=False, clip=None):
        """Writes what the window shows, the whole page, or a part of it, as PNG."""
        params = {"format": "png", "captureBeyondViewport": whole or clip is not None}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = [0, 0, size["width"], size["height"]]
        if clip:
            x, y, width, height = clip
            params["clip"] = {"x": x, "y": y, "width": width, "height": height, "scale": 1}
        data = self.call("Page.captureScreenshot", **params)["data"]
        pathlib.Path(to).write_bytes(base64.b64decode(data))
