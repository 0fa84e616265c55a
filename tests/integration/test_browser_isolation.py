"""What keeps the browser from the network, and what is left of it when the crawl is killed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import pytest

from crawler.render.browser import BrowserOptions, process_tree
from crawler.render.isolation import ways
from tests.harness.rendering import Browsing, browsing, is_alive
from tests.harness.sources import PROJECT
from tests.harness.waiting import wait_until

TRIES: Final = """
const at = "127.0.0.1:PORT";
new WebSocket(`ws://${at}/`);
new EventSource(`http://${at}/`);
fetch(`http://${at}/`, {mode: "no-cors"}).catch(() => 0);
navigator.sendBeacon(`http://${at}/`, "x");
try { new WebTransport(`https://${at}/`) } catch {}
new Image().src = `http://${at}/`;
open(`http://${at}/`);
for (const rel of ["preconnect", "dns-prefetch", "prefetch", "preload"]) {
  const link = document.createElement("link");
  link.rel = rel; link.href = `http://${at}/`; document.head.append(link);
}
const servers = [{urls: `stun:${at}`},
  {urls: `turn:${at}?transport=tcp`, username: "u", credential: "c"}];
const peers = new RTCPeerConnection({iceServers: servers});
peers.createDataChannel("x");
peers.createOffer().then((offer) => peers.setLocalDescription(offer));
new Worker(URL.createObjectURL(new Blob([`
  new WebSocket("ws://${at}/"); fetch("http://${at}/").catch(() => 0)`])));
setTimeout(() => document.body.append("tried"), 1000);
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root enters a namespace of others")


def tries(port: int) -> str:
    return f"<p></p><script>{TRIES.replace('PORT', str(port))}</script>"


@contextmanager
def listening() -> Iterator[tuple[socket.socket, socket.socket, int]]:
    """Listen on loopback, by TCP and UDP at one port."""
    with closing(socket.create_server(("127.0.0.1", 0))) as tcp:
        port: int = tcp.getsockname()[1]
        with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as udp:
            udp.bind(("127.0.0.1", port))
            tcp.setblocking(False)
            udp.setblocking(False)
            yield tcp, udp, port


def in_namespace_of(pid: int, *command: str) -> str:
    entered = ["nsenter", "--target", str(pid), "--net", *command]
    return subprocess.run(entered, check=True, capture_output=True, text=True).stdout


def browser_process(browser: Browsing) -> int:
    """Return a process of the browser, in its namespaces."""
    for pid in process_tree(os.getpid()):
        if "--type=gpu-process" in Path(f"/proc/{pid}/cmdline").read_text():
            return pid
    raise AssertionError(f"no browser runs: {browser.lacks}")


@needs_root
def test_no_packet_leaves_the_namespace() -> None:
    nft = shutil.which("nft") or "/usr/sbin/nft"
    with browsing(BrowserOptions(page_s=5.0, quiet_s=1.5)) as browser:
        assert browser.lacks == ""
        pid = browser_process(browser)
        for rule in ("table inet t", "chain inet t out { type filter hook output priority 0; }"):
            in_namespace_of(pid, nft, f"add {rule}")
        in_namespace_of(pid, nft, "add rule inet t out counter")
        assert b"tried" in browser.render(tries(80)).dom
        assert "counter packets 0 bytes 0" in in_namespace_of(pid, nft, "list chain inet t out")
        assert "UP" not in in_namespace_of(pid, "ip", "-br", "link").replace("UNKNOWN", "")


def test_without_a_namespace_nothing_reaches_loopback() -> None:
    options = BrowserOptions(page_s=5.0, quiet_s=1.5, use_namespaces=False)
    with listening() as (tcp, udp, port), browsing(options) as browser:
        assert "without a network namespace" in browser.lacks
        assert b"tried" in browser.render(tries(port)).dom
        for each in (tcp.accept, lambda: udp.recv(1)):
            with pytest.raises(BlockingIOError):
                each()


def test_the_first_way_has_all_there_is() -> None:
    first = next(ways(use_namespaces=True))
    assert (first.kind, first.sentence()) == (
        "namespaces" if os.geteuid() == 0 else "user namespace",
        "",
    )


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder that the browser's user may pass, unlike pytest's."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o711)
        before, tempfile.tempdir = tempfile.tempdir, made
        yield Path(made)
        tempfile.tempdir = before


@pytest.mark.parametrize("way", ["namespaces", "none"])
def test_nothing_is_left_of_a_crawl_that_is_killed(way: str, temporary: Path) -> None:
    command = [sys.executable, "-m", "tests.harness.killed_browser", way]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(command, cwd=PROJECT, env=environment, stdout=subprocess.PIPE) as crawl:
        assert crawl.stdout is not None
        running = [int(each) for each in crawl.stdout.readline().split()]
        assert len(running) > 5 and crawl.pid in running
        crawl.kill()
    wait_until(lambda: not any(map(is_alive, running)), 5, "every process ended")
    (abandoned,) = temporary.iterdir()
    with browsing(BrowserOptions()):
        assert not abandoned.exists()
    assert list(temporary.iterdir()) == []
