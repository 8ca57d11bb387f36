"""A headless Chromium, driven over a pipe with the standard library alone (DevTools protocol)."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import signal
import time
from pathlib import Path
from typing import Any, Self

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
    "--disable-background-networking", "--force-color-profile=srgb", "--hide-scrollbars", "--remote-debugging-pipe",
]  # fmt: skip


class Page:
    """One page of a browser; what it says on the console, and what it asks for, is kept."""

    def __init__(self, program: str, folder: Path) -> None:
        to_child, self._out = os.pipe()
        self._in, from_child = os.pipe()
        ends = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20) for fd in (to_child, from_child)]  # clear of 3 and 4
        actions = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
        actions += [(os.POSIX_SPAWN_DUP2, ends[0], 3), (os.POSIX_SPAWN_DUP2, ends[1], 4)]
        words = [program, *FLAGS, f"--user-data-dir={folder}", "about:blank"]
        self._pid = os.posix_spawn(program, words, os.environ, file_actions=actions)
        for fd in (to_child, from_child, *ends):
            os.close(fd)
        self._number, self._session, self._buffer = 0, "", b""
        self.said: list[str] = []
        self.asked: list[str] = []
        self.events: list[str] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._out)  # which ends it
        for patience in range(100):
            if os.waitpid(self._pid, os.WNOHANG)[0]:
                break
            if patience == 50:
                os.kill(self._pid, signal.SIGKILL)
            time.sleep(0.1)
        os.close(self._in)

    # ------------------------------------------------------------------------------------------- protocol
    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Ask, and wait for the answer; what else arrives meanwhile is kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self._keep(answer)

    def _receive(self, seconds: float = 60) -> dict[str, Any]:
        until = time.monotonic() + seconds
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(until - time.monotonic(), 0))
            assert ready, "Chromium does not answer"
            chunk = os.read(self._in, 1 << 20)
            assert chunk, "Chromium has gone"
            self._buffer += chunk
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _keep(self, event: dict[str, Any]) -> None:
        method, params = event.get("method", ""), event.get("params", {})
        self.events.append(method)
        if method == "Runtime.consoleAPICalled":
            self.said.append(" ".join(str(a.get("value", a)) for a in params["args"]))
        elif method == "Runtime.exceptionThrown":
            self.said.append(json.dumps(params["exceptionDetails"])[:500])
        elif method == "Log.entryAdded":
            self.said.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.asked.append(params["request"]["url"])

    # ---------------------------------------------------------------------------------------------- what it does
    def open(self, url: str) -> None:
        """Go there, and wait until all is loaded."""
        self.said, self.asked, self.events = [], [], []
        self.send("Page.navigate", url=url)
        while "Page.loadEventFired" not in self.events:
            self._keep(self._receive())

    def size(self, width: int, height: int = 900, mobile: bool = False) -> None:
        """The size of the window, as a phone's if asked."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

    def value(self, expression: str) -> Any:
        """What an expression comes to in the page."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def key(self, name: str, code: int, text: str = "") -> None:
        """Press and release a key."""
        more = {"text": text} if text else {}
        press = {"key": name, "code": name, "windowsVirtualKeyCode": code}
        self.send("Input.dispatchKeyEvent", type="keyDown", **press, **more)
        self.send("Input.dispatchKeyEvent", type="keyUp", **press)

    def move(self, x: float, y: float) -> None:
        """Move the pointer."""
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def pdf(self) -> bytes:
        """The page on paper."""
        return base64.b64decode(self.send("Page.printToPDF", printBackground=False)["data"])

    def screenshot(self) -> bytes:
        """The whole page as PNG."""
        return base64.b64decode(self.send("Page.captureScreenshot", captureBeyondViewport=True)["data"])
