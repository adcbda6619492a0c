"""Driving Chromium through its debugging pipe.

With `--remote-debugging-pipe` the browser reads commands from file descriptor 3 and writes
replies and events to 4, as JSON texts that end with a zero byte. So no port is opened and no
library is needed. The commands are those of the Chrome DevTools Protocol.
"""

import base64
import itertools
import json
import os
import re
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np

PATIENCE = 20.0
"""Seconds until a browser that does not answer is given up."""

FLAGS = (
    "--headless=new",
    "--no-sandbox",  # Chromium refuses to run as root otherwise, and containers are root.
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--no-first-run",
    "--no-default-browser-check",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


def find_browser() -> str | None:
    """The browser's program: the one that FILTRAX_BROWSER names, or else one on the path."""
    named = os.environ.get("FILTRAX_BROWSER")
    names = [named] if named else ["chromium", "chromium-browser", "google-chrome"]
    return next(filter(None, map(shutil.which, names)), None)


class Browser:
    """One browser with one page, and all that went wrong in it."""

    def __init__(self, program: str, profile: Path):
        from_us, self._to_browser = os.pipe()
        self._from_browser, to_us = os.pipe()
        # The shell puts the pipes where the browser looks for them.
        place = f'exec "$@" 3</dev/fd/{from_us} 4>/dev/fd/{to_us}'
        command = ["sh", "-c", place, "sh", program, *FLAGS, f"--user-data-dir={profile}"]
        self._process = subprocess.Popen(
            command,
            pass_fds=(from_us, to_us),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(from_us)
        os.close(to_us)
        self._numbers = itertools.count(1)
        self._unread = b""
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        self._session = None
        try:
            self.call("Browser.close")
            self._process.wait(PATIENCE)
        finally:
            self._process.kill()
            self._process.wait()
            os.close(self._to_browser)
            os.close(self._from_browser)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Sends a command and waits for its result; events on the way are kept."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to_browser, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._receive()
            if reply.get("id") != number:
                self.events.append(reply)
            elif "error" in reply:
                raise RuntimeError(f"{method}: {reply['error']}")
            else:
                return reply["result"]

    def _receive(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._unread:
            left = deadline - time.monotonic()
            readable, _, _ = select.select([self._from_browser], [], [], max(left, 0))
            received = os.read(self._from_browser, 1 << 20) if readable else b""
            if not received:
                raise RuntimeError("The browser does not answer.")
            self._unread += received
        message, self._unread = self._unread.split(b"\0", 1)
        return json.loads(message)

    def open(self, page: Path) -> None:
        """Opens a file and waits until it is loaded and drawn."""
        self.events.clear()
        self.call("Page.navigate", url=page.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive())
        self.settle()

    def settle(self) -> None:
        """Waits until the browser has laid out and drawn the page twice."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def run(self, program: str) -> Any:
        """The value of a JavaScript expression; promises are waited for."""
        answer = self.call(
            "Runtime.evaluate", expression=program, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{program}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Waits until a JavaScript expression becomes true."""
        deadline = time.monotonic() + PATIENCE
        while not self.run(f"Boolean({condition})"):
            if time.monotonic() > deadline:
                raise AssertionError(f"Waited in vain for {condition}.")
            time.sleep(0.02)

    def resize(self, width: int, height: int = 900, *, zoom: float = 1) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=zoom,
            mobile=False,
        )

    def prefer(self, **features: str) -> None:
        """Sets media features, like `color_scheme="dark"`."""
        named = [
            {"name": f"prefers-{name.replace('_', '-')}", "value": value}
            for name, value in features.items()
        ]
        self.call("Emulation.setEmulatedMedia", features=named)

    def centre(self, selector: str) -> tuple[float, float]:
        """Scrolls an element into view and gives its middle."""
        box = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center', behavior: 'instant'});"
            "const b = e.getBoundingClientRect();"
            "return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        return box[0], box[1]

    def move(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, x: float, y: float) -> None:
        self.move(x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str) -> None:
        """Presses and releases a key, named as in KeyboardEvent.key."""
        codes = {" ": 32, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowRight": 39, "Tab": 9}
        common = {"key": key, "code": "Space" if key == " " else key}
        common |= {"windowsVirtualKeyCode": codes[key]}
        text = {"text": " "} if key == " " else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **common, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        data = self.call("Page.captureScreenshot", captureBeyondViewport=whole, format="png")
        path.write_bytes(base64.b64decode(data["data"]))

    def complaints(self) -> list[str]:
        """JavaScript errors and whatever was written to the console since the page opened."""
        self.settle()
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [json.dumps(e["params"]) for e in self.events if e.get("method") in kinds]

    def requests(self) -> list[str]:
        """The addresses that the page asked for since it opened."""
        sent = [e for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    def text(self, selector: str) -> str:
        return self.run(f"document.querySelector({json.dumps(selector)}).textContent")

    def click_on(self, selector: str) -> None:
        self.click(*self.centre(selector))


def line_paths(browser: Browser, chart: str) -> dict[str, str]:
    """The SVG paths of all lines of a chart by the names of their series."""
    return browser.run(
        f"Object.fromEntries([...document.querySelectorAll({json.dumps(chart)} + ' .series')]"
        ".filter(s => s.querySelector('.line'))"
        ".map(s => [s.dataset.name, s.querySelector('.line').getAttribute('d')]))"
    )


def corners(path: str) -> np.ndarray:
    """The corners of an SVG path."""
    return np.asarray([pair.split() for pair in re.findall(r"[ML]([\d. -]+)", path)], float)
