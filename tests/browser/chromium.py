"""A headless Chromium of the system, driven over its own protocol (CDP): one page, clicks, keys, pictures.

with chromium(folder) as page:
    page.go("http://127.0.0.1:8672/")
    page.fill("[name=user]", "boss")
    page.click("button")
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs
from websockets.sync.client import ClientConnection, connect

WAIT_S: Final = 30.0
MESSAGE_BYTES_MAX: Final = 64 << 20  # of a picture
DESKTOP: Final = (1280, 800)
PHONE: Final = (390, 780)
OPTIONS: Final = (
    "--headless=new", "--disable-gpu", "--no-first-run", "--disable-extensions", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
    "--disable-dev-shm-usage", "--remote-debugging-port=0", "about:blank",
)  # fmt: skip


@attrs.define(eq=False)
class Page:
    """The page. `faults` is what its console said: errors, exceptions, what the policy stopped."""

    _socket: ClientConnection
    _session: str = ""
    _count: int = 0
    _loads: int = 0
    faults: list[str] = attrs.field(factory=list)

    def call(self, method: str, **told: Any) -> Any:
        """One command of CDP, and its result."""
        self._count += 1
        mine = self._count
        command = {"id": mine, "method": method, "params": told}
        if self._session:
            command["sessionId"] = self._session
        self._socket.send(json.dumps(command))
        while True:
            heard = self._hear()
            if heard.get("id") == mine:
                assert "error" not in heard, (method, heard["error"])
                return heard["result"]

    def _hear(self) -> dict[str, Any]:
        heard: dict[str, Any] = json.loads(self._socket.recv(WAIT_S))
        told = heard.get("params", {})
        match heard.get("method"):
            case "Page.loadEventFired":
                self._loads += 1
            case "Runtime.exceptionThrown":
                self.faults.append(str(told["exceptionDetails"]))
            case "Log.entryAdded" if told["entry"]["level"] == "error":
                self.faults.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")
        return heard

    def attach(self) -> None:
        """To the tab that is there."""
        (tab, *_) = [t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page"]
        attached = self.call("Target.attachToTarget", targetId=tab["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.size(DESKTOP)

    def size(self, size: tuple[int, int], *, dark: bool = False, scale: float = 1.0) -> None:
        """How large the window is, and which colours the system wants."""
        width, height = size
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale,
            mobile=size == PHONE,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def go(self, url: str) -> None:
        """Open an address, and wait until it is loaded."""
        before = self._loads
        self.call("Page.navigate", url=url)
        self._loaded(before)

    def _loaded(self, before: int) -> None:
        deadline = time.monotonic() + WAIT_S
        while self._loads == before:
            assert time.monotonic() < deadline, "the page did not load"
            self._hear()

    def js(self, expression: str) -> Any:
        """The value of an expression in the page."""
        told = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Until an expression is true: the page tells, frame by frame."""
        self.js(f"""new Promise((done, failed) => {{
          const end = Date.now() + {WAIT_S * 1_000};
          (function look() {{
            if ({expression}) done(true);
            else if (Date.now() > end) failed(new Error("never"));
            else setTimeout(look, 20);
          }})();
        }})""")

    @property
    def words(self) -> str:
        """What a reader sees."""
        return str(self.js("document.body.innerText"))

    @property
    def path(self) -> str:
        """Where the page is."""
        return str(self.js("location.pathname + location.search"))

    def click(self, selector: str) -> None:
        """A click that loads another page."""
        before = self._loads
        self.js(f"document.querySelector({json.dumps(selector)}).click()")
        self._loaded(before)

    def press(self, text: str) -> None:
        """Keys, one after the other, as somebody types them."""
        for key in text:
            self.key(key, text=key)

    def key(self, name: str, *, text: str = "") -> None:
        """One key."""
        told: dict[str, Any] = {"key": name, "text": text} if text else {"key": name}
        if name == "Enter":
            told |= {"text": "\r", "windowsVirtualKeyCode": 13, "code": "Enter"}
        self.call("Input.dispatchKeyEvent", type="keyDown", **told)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=name)

    def keys_that_load(self, *names: str) -> None:
        """Keys, of which the last one opens another page."""
        before = self._loads
        for name in names:
            self.key(name, text="" if len(name) > 1 else name)
        self._loaded(before)

    def fill(self, selector: str, value: str) -> None:
        """Write into a field."""
        field = f"document.querySelector({json.dumps(selector)})"
        self.js(f"{field}.focus(), {field}.select?.(), true")
        self.call("Input.insertText", text=value)

    def picture(self, path: Path) -> None:
        """What is in the window, as PNG."""
        told = self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(told["data"]))


@contextmanager
def chromium(folder: Path, *options: str) -> Iterator[Page]:
    """A browser with a profile of its own below `folder`, more options, and its one page."""
    program = shutil.which("chromium")
    assert program is not None, "expected Chromium, found none: .ci/run browser installs it"
    profile = folder / "profile"
    rooted = ["--no-sandbox"] if os.geteuid() == 0 else []  # its sandbox does not work for root
    command = [program, f"--user-data-dir={profile}", *rooted, *options, *OPTIONS]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    # What else it says is thrown away, so that it never waits for a reader.
    rest = threading.Thread(target=process.stderr.read, daemon=True)
    try:
        url = _address(process.stderr)
        rest.start()
        with connect(url, max_size=MESSAGE_BYTES_MAX, compression=None) as socket:
            page = Page(socket)
            page.attach()
            yield page
            page._session = ""
            page.call("Browser.close")
    finally:
        process.terminate()
        process.wait(WAIT_S)
        if rest.ident is not None:
            rest.join()
        process.stderr.close()


def _address(lines: Any) -> str:
    """Where it listens; it says so on its standard error."""
    for line in lines:
        if line.startswith("DevTools listening on "):
            return str(line.split()[-1])
    raise AssertionError("Chromium ended at once")
