"""A real pywb on loopback, and a real browser that shows what it replays."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from tests.harness.sources import PROJECT
from tests.harness.waiting import wait_until
from tests.servers.browser import browser_command

JUDGES: Final = PROJECT / ".venv-judges" / "bin"
ADDRESS: Final = "127.0.73.1"
COLLECTION: Final = "gossamer"
WAIT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Replayed:
    status: int
    headers: dict[str, str]
    body: bytes


class _Stay(HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """A redirect is an answer too."""


@dataclass(frozen=True, slots=True)
class Pywb:
    root: str

    def url(self, url: str, at: str = "2026") -> str:
        """As archived, links rewritten, without pywb's own frame around it."""
        return f"{self.root}/{COLLECTION}/{at}mp_/{url}"

    def ask(self, url: str, at: str = "2026") -> Replayed:
        """*at*: digits of a time; the capture nearest to it is replayed."""
        try:
            with build_opener(_Stay).open(Request(self.url(url, at)), timeout=WAIT_S) as got:  # noqa: S310  # http, ours
                return Replayed(got.status, dict(got.headers), got.read())
        except HTTPError as answer:
            with answer:
                return Replayed(answer.code, dict(answer.headers), answer.read())


@contextmanager
def pywb(folder: Path, warcs: Iterable[Path], *, is_proxy: bool = False) -> Iterator[Pywb]:
    """Serve *warcs*, whose index is pywb's own work. *folder* is empty. *is_proxy*: be a proxy of a
    browser instead, with pages as archived: nothing is rewritten, and no word above them."""
    if is_proxy:
        proxy = f"{{coll: {COLLECTION}, use_banner: false, use_wombat: false}}"
        (folder / "config.yaml").write_text(f"proxy: {proxy}\n")
    assert (JUDGES / "wayback").exists(), "this test needs pywb: sh scripts/judges.sh installs it"
    manager = [str(JUDGES / "wb-manager")]
    for command in (["init", COLLECTION], ["add", COLLECTION, *map(str, warcs)]):
        subprocess.run(
            [*manager, *command], cwd=folder, check=True, capture_output=True, timeout=60
        )
    with socket.create_server((ADDRESS, 0)) as free:
        port = free.getsockname()[1]
    command = [str(JUDGES / "wayback"), "-b", ADDRESS, "-p", str(port)]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        serving = Pywb(f"http://{ADDRESS}:{port}")
        _await(serving, server)
        yield serving
    finally:
        server.terminate()
        server.wait(WAIT_S)


def _await(serving: Pywb, server: subprocess.Popen[bytes]) -> None:
    def answers() -> bool:
        try:
            with build_opener().open(serving.root, timeout=WAIT_S):
                return True
        except URLError:
            assert server.poll() is None, "pywb has ended"
            return False

    wait_until(answers, WAIT_S, "pywb answers", poll_s=0.1)


class Browser:
    """Chromium without a window."""

    def __init__(self, home: Path) -> None:
        self._command = browser_command(home)

    def dom(self, url: str) -> str:
        """The page at *url* as HTML, after its scripts have run."""
        command = [*self._command, "--dump-dom", url]
        done = subprocess.run(command, check=True, capture_output=True, timeout=2 * WAIT_S)
        return done.stdout.decode()

    def screenshot(self, url: str, file: Path) -> Path:
        command = [*self._command, f"--screenshot={file}", url]
        subprocess.run(command, check=True, capture_output=True, timeout=2 * WAIT_S)
        return file
