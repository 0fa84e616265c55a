"""Parsing in separate processes: whatever a body does there, the crawl goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Self, TypeVar

import pytest
import uvloop

from crawler.config.settings import ContentSettings
from crawler.content.parsers.html import HtmlParser
from crawler.content.parsers.loading import (
    LINKS_CUT,
    MAX_LINKS,
    MAX_TEXT_CHARS,
    TEXT_CUT,
    within_limits,
)
from crawler.content.parsing import Parsers
from crawler.model.page import (
    Parsed,
    Source,
    Unreadable,
)
from tests.harness.foreign_parsers import foreign_parsers
from tests.harness.pdf_files import bomb, form_in_itself, pages_text, story, tree_in_itself
from tests.harness.sources import PROJECT
from tests.harness.waiting import wait_until

T = TypeVar("T")
MEGABYTE = 1024 * 1024
TYPE = "application/x-notes"
SHORT_S = 1.5


@pytest.fixture(autouse=True)
def package(tmp_path: Path) -> Iterator[str]:
    with foreign_parsers(tmp_path) as name:
        yield name


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Awaitable[T]], T]:
    chosen: Callable[[Awaitable[T]], T] = request.param
    return chosen


class Bench:
    """A registry with one parser, and what its bodies gave."""

    def __init__(self, timeout_s: float, max_bytes: int, parser: str) -> None:
        content = ContentSettings(
            parsers=(f"strange_parsers.{parser}",) if parser else (),
            parse_timeout_s=timeout_s,
            parse_max_bytes=max_bytes,
        )
        self.parsers = Parsers(content)

    async def parse(self, body: bytes, media_type: str = TYPE) -> Parsed:
        parser = self.parsers.parser_for(media_type)
        assert parser is not None
        return await self.parsers.parse(Source("http://a.example/x", media_type, body), parser)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.parsers.close()


def bench(
    *, timeout_s: float = 20.0, max_bytes: int = 512 * MEGABYTE, parser: str = "Apart"
) -> Bench:
    return Bench(timeout_s, max_bytes, parser)


def is_alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
        # Where no process waits for orphans (some containers), zombies stay listed.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:  # it is gone since, or there is no /proc
        return not Path("/proc").exists()


def test_a_process_is_used_again_and_ended_with_the_crawl(run: Callable[..., None]) -> None:
    async def scenario() -> None:
        async with bench() as parsers:
            first = await parsers.parse(b"good")
            second = await parsers.parse(b"good")
            assert first.title == second.title != str(os.getpid())
            assert (first.text, second.text) == ("1", "2")  # one parser, made once
            assert is_alive(first.title)
        assert not is_alive(first.title)

    run(scenario())


@pytest.mark.parametrize(
    ("body", "message", "limits"),
    [
        pytest.param(b"slow", "took longer than 1.5 s", {"timeout_s": SHORT_S}, id="it waits"),
        pytest.param(b"busy", "took longer than 1.5 s", {"timeout_s": SHORT_S}, id="it computes"),
        pytest.param(b"hungry", "of memory", {"max_bytes": 128 * MEGABYTE}, id="all the memory"),
        pytest.param(b"crash", "broken: died", {}, id="a null pointer"),
        pytest.param(b"leave", "broken: died", {}, id="it ends its process"),
        pytest.param(b"deep", "RecursionError", {}, id="it calls itself without end"),
        pytest.param(b"wrong", "KeyError", {}, id="it throws"),
        pytest.param(b"refuse", "not for me", {}, id="it refuses, as it may"),
        pytest.param(b"forge", "replied more than", {}, id="it writes where our answers go"),
    ],
)
def test_the_next_body_is_parsed(
    run: Callable[..., None], body: bytes, message: str, limits: dict[str, float]
) -> None:
    async def scenario() -> None:
        async with bench(**limits) as parsers:  # type: ignore[arg-type]  # a table's row
            with pytest.raises(Unreadable, match=message):
                await parsers.parse(body)
            assert (await parsers.parse(b"good")).title

    run(scenario())


def test_time_limits_count_only_cpu_time_of_the_parser(run: Callable[..., None]) -> None:
    async def scenario() -> None:
        async with bench(timeout_s=SHORT_S) as parsers:
            assert (await parsers.parse(b"waits")).title

    run(scenario())


def test_output_of_a_library_is_no_reply(run: Callable[..., None]) -> None:
    async def scenario() -> None:
        async with bench() as parsers:
            assert (await parsers.parse(b"prints")).title

    run(scenario())


def test_an_answer_is_bounded() -> None:
    async def scenario() -> Parsed:
        async with bench(parser="Talkative") as parsers:
            return await parsers.parse(b"")

    message = asyncio.run(scenario())
    assert len(message.text) == MAX_TEXT_CHARS
    assert len(message.links) <= MAX_LINKS
    assert message.notes == (LINKS_CUT, TEXT_CUT)


def test_a_body_too_long_for_the_memory_is_not_tried() -> None:
    async def scenario() -> None:
        async with bench(max_bytes=64 * MEGABYTE) as parsers:
            with pytest.raises(Unreadable, match="too many"):
                await parsers.parse(bytes(17 * MEGABYTE))

    asyncio.run(scenario())


def test_a_long_body_arrives_whole() -> None:
    async def scenario() -> Parsed:
        async with bench() as parsers:
            return await parsers.parse(b"good " + bytes(60 * MEGABYTE))

    assert asyncio.run(scenario()).title


def test_bodies_of_a_parser_wait_for_its_process(run: Callable[..., None]) -> None:
    async def scenario() -> None:
        async with bench() as parsers:
            answers = await asyncio.gather(*(parsers.parse(b"good") for _ in range(50)))
            assert len({answer.title for answer in answers}) == 1

    run(scenario())


OTHERS = {
    "a feed": (b"<rss version='2.0'><channel><title>x</title>", "application/rss+xml"),
    "a sitemap": (b"<urlset>" + b"<url><loc>/a</loc></url>" * 10_000, "application/xml"),
    "a long page": (b"<title>x</title>" + b"<p>once upon a time" * 50_000, "text/html"),
    "a long text": (b"once upon a time\n" * 50_000, "text/plain"),
    "a PDF": (story("once"), "application/pdf"),
}


@pytest.mark.parametrize(("body", "media_type"), OTHERS.values(), ids=OTHERS)
def test_a_parser_that_is_held_up_holds_up_no_other(body: bytes, media_type: str) -> None:
    """However many of its bodies wait."""

    async def scenario() -> None:
        async with bench() as parsers:
            slow = [asyncio.create_task(parsers.parse(b"slow")) for _ in range(10)]
            await asyncio.sleep(0)  # they come first
            await parsers.parse(body, media_type)
            assert not any(task.done() for task in slow)
            await parsers.parsers.close()
            assert len(await asyncio.gather(*slow, return_exceptions=True)) == len(slow)

    asyncio.run(scenario())


def test_a_cancelled_body_makes_room_for_the_next(run: Callable[..., None]) -> None:
    async def scenario() -> None:
        async with bench() as parsers:
            body = asyncio.create_task(parsers.parse(b"slow"))
            await parsers.parse(story("meanwhile"), "application/pdf")
            body.cancel()
            with pytest.raises(asyncio.CancelledError):
                await body
            assert (await parsers.parse(b"good")).title

    run(scenario())


def test_closing_ends_what_is_under_way() -> None:
    async def scenario() -> None:
        parsers = bench()
        bodies = [asyncio.create_task(parsers.parse(b"slow")) for _ in range(2)]
        await parsers.parse(story("meanwhile"), "application/pdf")
        await parsers.parsers.close()
        for body in bodies:
            with pytest.raises(Unreadable):
                await body

    asyncio.run(scenario())


PAGES = {
    "prose": "<html lang=de><title>T\xe4</title>" + "<p>once upon a time <a href=/a>x</a>" * 30_000,
    "nothing but <": "<" * 600_000,
    "references to what is no letter": "&#xD800; &#0; &#x110000; &amp;" * 30_000,
    "links": "".join(f"<a href='/{n}' rel='nofollow ugc'>x</a>" for n in range(60_000)),
    "bytes of no letter": "\ud800<p>\udfff" * 120_000,
}


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_a_long_page_is_read_apart_as_it_would_be_here(page: str) -> None:
    """As far as it fits."""

    async def scenario() -> None:
        async with bench(parser="") as parsers:
            body = page.encode("utf-8", "surrogatepass")
            there = await parsers.parse(body, "text/html")
            here = HtmlParser().parse(Source("http://a.example/x", "text/html", body))
            assert there == within_limits(here, "html")

    assert len(page) > HtmlParser.inline_max_bytes
    asyncio.run(scenario())


def test_a_page_that_takes_too_long_is_unreadable() -> None:
    async def scenario() -> None:
        async with bench(parser="", timeout_s=1e-6) as parsers:
            with pytest.raises(Unreadable, match="took longer"):
                await parsers.parse(b"<p>" * MEGABYTE, "text/html")

    asyncio.run(scenario())


def test_the_parser_process_ends_with_a_killed_crawl() -> None:
    """By the kernel on Linux; it would notice the end of its input after the body elsewhere."""
    program = """
        import asyncio, sys
        from crawler.config.settings import ContentSettings
        from crawler.model.page import Source
        from crawler.content.parsing import Parsers

        async def crawl():
            parsers = Parsers(ContentSettings(parsers=("strange_parsers.Apart",)))
            parser = parsers.parser_for("application/x-notes")
            parsed = await parsers.parse(Source("", "", b"good"), parser)
            print(parsed.title, flush=True)
            await parsers.parse(Source("", "", b"slow"), parser)

        asyncio.run(crawl())
        """
    crawl = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(PROJECT), *sys.path])},
    )
    with crawl:
        assert crawl.stdout is not None
        child = crawl.stdout.readline().strip()
        assert is_alive(child)
        crawl.send_signal(signal.SIGKILL)
        crawl.wait()
    wait_until(lambda: not is_alive(child), 60, f"process {child} is gone")


@pytest.mark.parametrize("loop", ["asyncio.SelectorEventLoop", "uvloop.Loop"])
def test_isolated_parsers_work_under_the_twisted_reactor(loop: str) -> None:
    program = f"""
        import asyncio
        from scrapy.utils.reactor import install_reactor
        install_reactor("twisted.internet.asyncioreactor.AsyncioSelectorReactor", "{loop}")
        from twisted.internet import reactor
        from crawler.config.settings import ContentSettings
        from crawler.model.page import Source, Unreadable
        from crawler.content.parsing import Parsers

        async def crawl():
            parsers = Parsers(ContentSettings(parsers=("strange_parsers.Apart",)))
            parser = parsers.parser_for("application/x-notes")
            for body in (b"good", b"crash", b"good"):
                try:
                    print((await parsers.parse(Source("", "", body), parser)).text)
                except Unreadable as unreadable:
                    print(unreadable)
            await parsers.close()
            reactor.stop()

        reactor.callWhenRunning(lambda: asyncio.ensure_future(crawl()))
        reactor.run()
        """
    message = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(PROJECT), *sys.path])},
    )
    assert message.stdout.split("\n") == ["1", "the parser apart is broken: died", "1", ""]


PDFS = {
    "a story": (story("Once upon a time", "http://a.example/1"), "Once upon a time", ()),
    "a tree in itself": (tree_in_itself(), "", ("broken_pages",)),
    "many pages": (pages_text(5_000), "", ("pages_cut",)),
}


@pytest.mark.parametrize(("body", "text", "notes"), PDFS.values(), ids=PDFS)
def test_a_pdf_is_read_apart(body: bytes, text: str, notes: tuple[str, ...]) -> None:
    async def scenario() -> Parsed:
        async with bench(parser="") as parsers:
            return await parsers.parse(body, "application/pdf")

    message = asyncio.run(scenario())
    assert (message.text, message.notes) == (text, notes)


def test_a_pdf_that_loops_is_ended() -> None:
    async def scenario() -> None:
        async with bench(parser="", timeout_s=SHORT_S) as parsers:
            # By its time, or by its memory, which grows with each turn.
            with pytest.raises(Unreadable, match=r"took longer|died"):
                await parsers.parse(form_in_itself(), "application/pdf")
            assert (await parsers.parse(story("next"), "application/pdf")).text == "next"

    asyncio.run(scenario())


def test_a_pdf_that_unpacks_to_more_than_the_memory_is_ended() -> None:
    async def scenario() -> None:
        async with bench(parser="", max_bytes=128 * MEGABYTE) as parsers:
            with pytest.raises(Unreadable, match="died"):
                await parsers.parse(bomb(256), "application/pdf")
            assert (await parsers.parse(story("next"), "application/pdf")).text == "next"

    asyncio.run(scenario())


def test_the_crawl_itself_loads_no_library_of_theirs() -> None:
    """Not one that reads what may be hostile, and not their memory."""
    program = """
        import sys
        from crawler.config.settings import ContentSettings
        from crawler.content.parsing import Parsers
        Parsers(ContentSettings())
        print({"pypdfium2", "feedparser"} & sys.modules.keys())
        """
    message = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        check=True,
        capture_output=True,
        text=True,
        cwd=PROJECT,
    )
    assert message.stdout == "set()\n"
