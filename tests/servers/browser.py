"""A real browser without a window: Chromium, driven through its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import aiohttp

from tests.harness.sources import PROJECT
from tests.harness.waiting import wait_until

WAIT_S: Final = 60.0
WINDOW: Final = (800, 600)
_AXE: Final = "lib/python*/site-packages/axe_playwright_python/axe.min.js"
_LEVELS: Final = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
_VIOLATIONS: Final = f"""axe.run(document, {{runOnly: {_LEVELS}}}).then((found) =>
  found.violations.map((each) => each.id + each.nodes[0].html.slice(0, 200)))"""
_CUT_OFF: Final = """[...document.querySelectorAll("main *")].filter((each) =>
  each.getBoundingClientRect().right > innerWidth + 1
  || getComputedStyle(each).overflowX !== "visible" && each.scrollWidth > each.clientWidth + 1
     && !each.matches("input, select, .unseen")).map((each) => each.outerHTML.slice(0, 200))"""


def browser_command(home: Path, names: Mapping[str, str] | None = None) -> list[str]:
    """Return the command of a browser that reaches loopback only, and *names* at their addresses.
    *home*: of its profile."""
    found = shutil.which("chromium")
    assert found, "this test needs chromium: scripts/system-packages.sh installs it"
    mapped = [f"MAP {name} {address}" for name, address in (names or {}).items()]
    rules = ", ".join([*mapped, "MAP * ~NOTFOUND", "EXCLUDE 127.*"])
    return [
        *(found, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        *("--hide-scrollbars", "--no-first-run", "--disable-background-networking"),
        *(f"--host-resolver-rules={rules}", f"--user-data-dir={home}"),
        f"--window-size={WINDOW[0]},{WINDOW[1]}",
    ]


class Tab:
    """One tab of a browser. What goes wrong in its scripts is in `errors`."""

    def __init__(self, port: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._calls = 0
        self.errors: list[str] = []
        self._loop.run_until_complete(self._connect(port))
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    async def _connect(self, port: int) -> None:
        self._session = aiohttp.ClientSession()
        async with self._session.get(f"http://127.0.0.1:{port}/json/list") as answer:
            tabs = [each for each in await answer.json() if each["type"] == "page"]
        self._socket = await self._session.ws_connect(
            tabs[0]["webSocketDebuggerUrl"], max_msg_size=0
        )

    def call(self, method: str, **params: object) -> dict[str, Any]:
        """Call a method of the protocol, and return its result."""
        return self._loop.run_until_complete(self._call(method, params))

    async def _call(self, method: str, params: dict[str, object]) -> dict[str, Any]:
        self._calls += 1
        await self._socket.send_json({"id": self._calls, "method": method, "params": params})
        while True:
            message = await self._socket.receive_json(timeout=WAIT_S)
            if message.get("id") == self._calls:
                assert "error" not in message, (method, message)
                result: dict[str, Any] = message["result"]
                return result
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"])[:500])
        if message.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """Return the value of *script*, an expression; of a promise what it becomes."""
        found = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, script: str, patience_s: float = WAIT_S) -> Any:
        """Return the value of *script* as soon as it is true."""

        def value() -> Any:
            # While a document gives way to the next, there is nothing to ask.
            with suppress(AssertionError):
                return self.run(script)
            return None

        return wait_until(value, patience_s, script, log=self.text)

    def text(self) -> str:
        with suppress(AssertionError):
            return str(self.run("document.body.innerText"))
        return "no text"

    def click(self, selector: str, text: str = "") -> None:
        """Click the first element of *selector*, with *text*, as soon as it is there."""
        found = (
            f"[...document.querySelectorAll({json.dumps(selector)})].find((each) =>"
            f" each.checkVisibility()"
            f" && (!{json.dumps(text)} || each.textContent === {json.dumps(text)}))"
        )
        self.wait(f"!!{found}")
        self.run(f"{found}.click()")

    def fill(self, selector: str, value: str) -> None:
        """Type *value* into the field of *selector*, as soon as it is there."""
        field = f"document.querySelector({json.dumps(selector)})"
        self.wait(f"{field} && !{field}.disabled")
        self.run(
            f"{field}.value = {json.dumps(value)},"
            f" {field}.dispatchEvent(new Event('change', {{bubbles: true}})), true"
        )

    def resize(self, size: Sequence[int], scheme: str = "light") -> None:
        """Be a window of *size*, light or dark."""
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=size[0],
            height=size[1],
            deviceScaleFactor=1,
            mobile=size[0] < 500,
        )

    def cut_off(self) -> list[str]:
        """Return the elements that do not fit the window, or hide a part of what is in them."""
        found: list[str] = self.run(_CUT_OFF)
        return found

    def violations(self) -> list[str]:
        """Return what axe-core finds against WCAG 2.2, levels A and AA."""
        if not self.run("!!window.axe"):
            axe = next((PROJECT / ".venv-judges").glob(_AXE))
            self.call("Runtime.evaluate", expression=axe.read_text())
        found: list[str] = self.run(_VIOLATIONS)
        return found

    def screenshot(self, file: Path) -> Path:
        taken = self.call("Page.captureScreenshot", format="png")
        file.write_bytes(base64.b64decode(taken["data"]))
        return file

    def close(self) -> None:
        self._loop.run_until_complete(self._socket.close())
        self._loop.run_until_complete(self._session.close())
        self._loop.close()


@contextmanager
def open_tab(home: Path, names: Mapping[str, str] | None = None, proxy: str = "") -> Iterator[Tab]:
    """A browser with one tab. *names*: by host name, the addresses that it takes them for. *proxy*:
    the URL of one that is asked for all pages, those of loopback too."""
    home.mkdir(parents=True)
    command = [*browser_command(home, names), "--remote-debugging-port=0"]
    if proxy:
        command += [f"--proxy-server={proxy}", "--proxy-bypass-list=<-loopback>"]
    command.append("about:blank")
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        written = home / "DevToolsActivePort"
        wait_until(lambda: written.exists() and written.read_text().count("\n"), WAIT_S)
        tab = Tab(int(written.read_text().splitlines()[0]))
        try:
            yield tab
        finally:
            tab.close()
    finally:
        process.terminate()
        try:
            process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
