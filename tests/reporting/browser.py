"""A headless Chromium, driven through two pipes by its own protocol: no driver, no package.

https://chromedevtools.github.io/devtools-protocol/ lists the commands.  Messages are JSON, each
ended by a zero byte; the browser reads them from file descriptor 3 and writes to 4.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

__all__ = ["Page", "find_browser", "open_page"]

_NAMES: Final = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "microsoft-edge",
)
_FLAGS: Final = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
_SECONDS: Final = 300.0


def find_browser() -> str | None:
    """The path of a browser that knows the protocol; POPC_TEST_BROWSER names another one."""
    named = os.environ.get("POPC_TEST_BROWSER")
    return named or next(filter(None, map(shutil.which, _NAMES)), None)


class Page:
    """A page in a browser: what it says, what happens on it, how it looks.

    Attributes:
        complaints: Exceptions, errors on the console, and requests to anywhere.
    """

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.complaints: list[str] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a command."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer.get('error')}"
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def _receive(self) -> dict[str, Any]:
        deadline = time.monotonic() + _SECONDS
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], max(deadline - time.monotonic(), 0))
            assert ready, "the browser does not answer"
            received = os.read(self._from, 1 << 16)
            assert received, "the browser has ended"
            self._buffer += received
        message, _, self._buffer = self._buffer.partition(b"\0")
        decoded: dict[str, Any] = json.loads(message)
        return decoded

    def _note(self, event: dict[str, Any]) -> None:
        method, parameters = event.get("method", ""), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(parameters["exceptionDetails"])[:2000])
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in {"error", "warning"}:
            self.complaints.append(json.dumps(parameters["args"])[:2000])
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in {"error", "warning"}:
            self.complaints.append(json.dumps(parameters["entry"])[:2000])
        elif method == "Network.requestWillBeSent":
            url = parameters["request"]["url"]
            if not url.startswith(("file:", "data:", "blob:")):
                self.complaints.append(f"request to {url}")

    def __call__(self, expression: str) -> Any:
        """The value of an expression in the page."""
        answer = self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait for an expression to be true."""
        deadline = time.monotonic() + _SECONDS
        while not self(expression):
            assert time.monotonic() < deadline, f"never true: {expression}"
            time.sleep(0.05)

    def resize(self, width: int, height: int = 900) -> None:
        """Make the window as wide as that of a phone, or of a desktop."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip

    def prefer(self, scheme: str) -> None:
        """What the person wants: a light or a dark page."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.send("Emulation.setEmulatedMedia", features=[feature])

    def click(self, selector: str) -> None:
        """With the mouse, in the middle of an element."""
        where = self(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center', behavior: 'instant'});"
            " const r = e.getBoundingClientRect();"
            " return {x: r.x + r.width / 2, y: r.y + r.height / 2}; })()"
        )
        for kind, buttons in (("mouseMoved", 0), ("mousePressed", 1), ("mouseReleased", 0)):
            self.send(
                "Input.dispatchMouseEvent",
                type=kind, button="left" if kind != "mouseMoved" else "none", buttons=buttons,
                clickCount=int(kind != "mouseMoved"), **where,
            )  # fmt: skip
            time.sleep(0.1)  # charts look twenty times a second at what the mouse is over

    def press(self, key: str) -> None:
        """A key, by its name."""
        text = "\r" if key == "Enter" else ""
        code = {"Enter": 13, "Tab": 9, "Escape": 27}[key]
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            self.send(
                "Input.dispatchKeyEvent",
                type=kind, key=key, code=key, windowsVirtualKeyCode=code, **more,
            )  # fmt: skip

    def write(self, selector: str, text: str) -> None:
        """Type into a field, in place of what it holds."""
        field = f"document.querySelector({json.dumps(selector)})"
        self(f"{field}.focus(); {field}.select()")
        self.send("Input.insertText", text=text)

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """A picture of the page."""
        shot = self.send("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self) -> bytes:
        """The page as it is printed."""
        return base64.b64decode(self.send("Page.printToPDF")["data"])


def _start(command: list[str]) -> tuple[int, int, int]:
    """The number of the process, and the ends of the pipes to and from it."""
    pipes = [*os.pipe(), *os.pipe()]
    # Descriptors that are not among those that the process gets.
    theirs_in, ours_out, ours_in, theirs_out = (
        fcntl.fcntl(pipes[index], fcntl.F_DUPFD_CLOEXEC, 10) for index in (0, 1, 2, 3)
    )
    for descriptor in pipes:
        os.close(descriptor)
    process = os.posix_spawn(
        command[0],
        command,
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_DUP2, theirs_in, 3),
            (os.POSIX_SPAWN_DUP2, theirs_out, 4),
        ],
    )
    os.close(theirs_in)
    os.close(theirs_out)
    return process, ours_out, ours_in


@contextmanager
def open_page(browser: str, path: Path, folder: Path, width: int = 1280) -> Iterator[Page]:
    """Show a file; ``folder`` is for what the browser keeps."""
    process, to_browser, from_browser = _start([browser, *_FLAGS, f"--user-data-dir={folder}"])
    try:
        page = Page(to_browser, from_browser)
        page.resize(width)
        page.send("Page.navigate", url=path.absolute().as_uri())
        page.until("document.documentElement?.dataset.ready === 'yes'")
        yield page
    finally:
        os.write(to_browser, b'{"id": 0, "method": "Browser.close"}\0')
        _wait(process)
        os.close(to_browser)
        os.close(from_browser)


def _wait(process: int) -> None:
    """Until it has ended by itself, or is made to."""
    deadline = time.monotonic() + 60
    while os.waitpid(process, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(process, signal.SIGKILL)
        time.sleep(0.02)
