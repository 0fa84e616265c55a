"""Python collects garbage less often only where no code of a user may leave any behind, and the C
library gives large blocks back."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import socket
import sys
from contextlib import suppress

import pytest
from scrapy import Spider
from scrapy.exceptions import CannotResolveHostError, DownloadConnectionRefusedError
from scrapy.settings import Settings

from crawler.addon import Addon
from crawler.cli.crawl import freeze_survivors, leaves_no_cycles
from crawler.config.settings import ContentSettings
from crawler.content.parsers.html import HtmlParser
from crawler.content.parsing import Parsers
from crawler.download.connection import Connections, Server, ssl_context
from crawler.download.resolver import AresLookup, LookupFailed, Resolver
from crawler.model.choices import Tls
from crawler.model.page import ResolvedName
from crawler.spiders.web import WebSpider
from tests.harness.commands import PATIENCE_S, run
from tests.harness.waiting import wait_until

HERE = "tests.unit.test_garbage"
BLOCK_BYTES, BLOCKS = 1 << 20, 64
LARGE_BLOCKS = f"""
import ctypes
from pathlib import Path
from crawler.cli.crawl import give_memory_back

def anonymous():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
give_memory_back()
libc.free(ctypes.c_void_p(libc.malloc(16 << 20)))  # by itself, glibc would keep smaller ones now
before = anonymous()
blocks = []
for _ in range({BLOCKS}):
    blocks.append(ctypes.c_void_p(libc.malloc({BLOCK_BYTES})))
    ctypes.memset(blocks[-1], 1, {BLOCK_BYTES})
    libc.malloc(2000)  # between two of them, which stays
at_most = anonymous()
for block in blocks:
    libc.free(block)
print(at_most - before, anonymous() - before)
"""
THEIRS = f"{HERE}.Theirs"


class Theirs:
    """A component of a project's own."""


class TheirParser(HtmlParser):
    """One of theirs, made of ours."""


class MoreThanWeb(WebSpider):
    """A spider of the project's, with our pages."""


def settled(project: dict[str, object]) -> Settings:
    settings = Settings(project)
    Addon().update_settings(settings)
    return settings


@pytest.mark.parametrize(
    ("spider", "project", "parsers", "is_so"),
    [
        pytest.param(WebSpider, {}, (), True, id="web, and a project without anything"),
        pytest.param(Spider, {}, (), False, id="a spider of one's own may select"),
        pytest.param(MoreThanWeb, {}, (), False, id="so may one that is made of web"),
        *(
            pytest.param(WebSpider, {setting: {given: 543}}, (), False, id=f"{setting}: {how}")
            for setting in (
                "ITEM_PIPELINES",
                "SPIDER_MIDDLEWARES",
                "DOWNLOADER_MIDDLEWARES",
                "EXTENSIONS",
            )
            for given, how in ((THEIRS, "one by name"), (Theirs, "one by class"))
        ),
        pytest.param(
            WebSpider,
            {"EXTENSIONS": {"crawler.report.logs.PageLogFormatter": 900}},
            (),
            False,
            id="what lies in the package, but has no place of ours",
        ),
        pytest.param(
            WebSpider, {"ITEM_PIPELINES": {THEIRS: None}}, (), True, id="one that is switched off"
        ),
        pytest.param(
            WebSpider,
            {"ITEM_PIPELINES": {"crawler.pipelines.LinksPipeline": 950}},
            (),
            True,
            id="one of ours, moved",
        ),
        pytest.param(
            WebSpider,
            {"DOWNLOADER_MIDDLEWARES": {"scrapy.downloadermiddlewares.retry.RetryMiddleware": 550}},
            (),
            True,
            id="one of Scrapy's, put back",
        ),
        pytest.param(WebSpider, {}, (f"{HERE}.TheirParser",), False, id="a parser of one's own"),
    ],
)
def test_where_nothing_heavy_can_wait_for_a_search(spider, project, parsers, is_so):
    assert (
        leaves_no_cycles(spider, settled(project), Parsers(ContentSettings(parsers=parsers)))
        is is_so
    )


@pytest.mark.parametrize("generation", [0, 1, 2])
def test_survivors_of_a_collection_are_not_looked_at_again(generation):
    """What a large frontier holds in memory would be gone through again and again."""
    kept = [[number] for number in range(10_000)]
    gc.callbacks.append(freeze_survivors)
    try:
        # It does nothing while another thread collects.
        wait_until(
            lambda: gc.collect(generation) >= 0 and gc.get_freeze_count() > len(kept), PATIENCE_S
        )
        looked_at = gc.get_objects()
        assert not any(each is kept for each in looked_at)
    finally:
        gc.callbacks.remove(freeze_survivors)
        gc.unfreeze()


class NoAnswer(AresLookup):
    async def __call__(self, name: str) -> ResolvedName:
        await asyncio.sleep(0)
        raise LookupFailed(None, f"no answer about {name}")


def connections_by(lookup: AresLookup) -> Connections:
    resolver = Resolver(lambda ip, host, port: True, lookup)
    return Connections(
        resolver,
        resolver,
        ssl_context(Tls.STRICT),
        local_address=None,
        connect_timeout_s=5.0,
        keepalive_s=1.0,
        most_open=10,
        head_max_bytes=1000,
    )


@pytest.mark.parametrize(
    ("host", "lookup", "raised"),
    [
        pytest.param("127.0.0.1", AresLookup, DownloadConnectionRefusedError, id="refused"),
        pytest.param("a.example", NoAnswer, CannotResolveHostError, id="not found"),
    ],
)
def test_a_failure_that_a_broad_crawl_meets_by_the_million_leaves_no_cycle(host, lookup, raised):
    """One that began before a collection would be frozen with what the frontier has in memory."""
    connections = connections_by(lookup())

    async def fail() -> None:
        with suppress(raised):  # pytest.raises makes cycles of its own
            await connections.open(server)

    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and not listening
        server = Server(host, closed.getsockname()[1])
        gc.collect()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            asyncio.run(fail())
            gc.collect()
            assert not [each for each in gc.garbage if isinstance(each, OSError)]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="glibc only")
def test_large_blocks_are_given_back_when_they_are_freed():
    ran = run([sys.executable, "-c", LARGE_BLOCKS])
    assert ran.returncode == 0, ran.stderr
    taken, left = map(int, ran.stdout.split())
    # The kernel may have taken back some of what no code touches.
    assert taken >= BLOCKS * BLOCK_BYTES * 3 / 4
    assert left < taken / 4
