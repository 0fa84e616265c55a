"""Which parser gets which media type, and how an invalid parser is refused."""

from __future__ import annotations

import asyncio
import logging
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawler.config.settings import ContentSettings
from crawler.content.parsing import BUILT_IN, Parsers
from crawler.model.page import (
    Link,
    Parsed,
    Source,
    Unreadable,
)
from crawler.model.types import ConfigError
from tests.harness.foreign_parsers import foreign_parsers
from tests.harness.sources import PROJECT


@pytest.fixture
def package(tmp_path: Path) -> Iterator[str]:
    with foreign_parsers(tmp_path) as name:
        yield name


def parsers(*paths: str) -> Parsers:
    return Parsers(ContentSettings(parsers=paths))


def parsed(registry: Parsers, media_type: str, body: bytes) -> Parsed:
    parser = registry.parser_for(media_type)
    assert parser is not None
    return asyncio.run(registry.parse(Source("http://a.example/", media_type, body), parser))


@pytest.mark.parametrize(
    ("media_type", "name"),
    [
        pytest.param("text/html", "html", id="a page"),
        pytest.param("application/xhtml+xml", "html", id="a page as XML, not any XML"),
        pytest.param("application/xml", "xml", id="XML: a sitemap, most likely"),
        pytest.param("text/xml", "xml", id="XML by its other name, not any text"),
        pytest.param("application/vnd.example+xml", "xml", id="a dialect of XML"),
        pytest.param("application/gzip", "packed", id="a packed sitemap"),
        pytest.param("application/rss+xml", "feed", id="RSS"),
        pytest.param("application/atom+xml", "feed", id="Atom"),
        pytest.param("application/pdf", "pdf", id="PDF"),
        pytest.param("text/plain", "text", id="plain text"),
        pytest.param("text/markdown", "text", id="any other text"),
        pytest.param("text/css", "css", id="a style sheet"),
        pytest.param("text/javascript", None, id="a script has nothing to read"),
        pytest.param("image/svg+xml", None, id="a drawing is no text"),
        pytest.param("image/png", None, id="a picture"),
        pytest.param("application/octet-stream", None, id="anything"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_each_type_has_its_parser(media_type: str, name: str | None) -> None:
    parser = parsers().parser_for(media_type)
    assert (parser and parser.name) == name


def test_a_parser_of_the_settings_takes_a_new_type(package: str) -> None:
    registry = parsers(f"{package}.Notes")
    answer = parsed(registry, "application/x-notes", b"/a /b")
    assert answer.links == (Link("/a"), Link("/b"))
    assert answer.parser == "notes"  # it did not say so itself


def test_a_parser_of_an_installed_package_takes_a_new_type(tmp_path: Path) -> None:
    with foreign_parsers(tmp_path, {"notes": "strange_parsers:Notes"}):
        assert parsed(parsers(), "application/x-notes", b"/a").links == (Link("/a"),)


def test_the_first_parser_gets_the_type(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Settings, then what is installed, by name, then ours."""
    points = {"b": "strange_parsers:Apart", "a": "strange_parsers:Html"}
    with foreign_parsers(tmp_path, points) as name, caplog.at_level(logging.WARNING):
        registry = parsers(f"{name}.Notes")
        assert type(registry.parser_for("application/x-notes")).__name__ == "Notes"
        assert type(registry.parser_for("text/html")).__name__ == "Html"
    (message,) = caplog.messages
    assert message == (
        "application/x-notes is parsed by strange_parsers:Notes, which comes before"
        " entry point b (crawler.parsers) of strange-parsers"
    )


@pytest.mark.parametrize(
    ("path", "message"),
    [
        pytest.param("strange_nowhere.Parser", "does not load", id="no such module"),
        pytest.param(
            "crawler.core.parsed.Parser",
            "imports from crawler.api",
            id="a module of ours that is gone",
        ),
        pytest.param("strange_parsers.Nobody", "does not load", id="no such class"),
        pytest.param("strange_broken.Parser", "RuntimeError: on import", id="fails on import"),
        pytest.param("strange_parsers.function", "is no class", id="a function"),
        pytest.param("strange_parsers.Needs", "cannot be made", id="wants arguments"),
        pytest.param("strange_parsers.Nameless", "name is 'Two words'", id="a name of two words"),
        pytest.param("strange_parsers.Untyped", "types has 'HTML'", id="no media type"),
        pytest.param("strange_parsers.Limitless", "inline_max_bytes is None", id="no limit"),
        pytest.param("strange_parsers.Later", "parse is no plain method", id="async"),
        pytest.param(
            "strange_parsers.Local", "separate process needs", id="a class within a function"
        ),
        pytest.param("pathlib.Path", "is no parser", id="a class of another kind"),
    ],
)
@pytest.mark.parametrize("how", ["setting", "entry point"])
def test_an_invalid_parser_stops_the_crawl_at_once(
    tmp_path: Path, path: str, message: str, how: str
) -> None:
    module, _, name = path.rpartition(".")
    points = {"mine": f"{module}:{name}"} if how == "entry point" else None
    with foreign_parsers(tmp_path, points), pytest.raises(ConfigError) as stopped:
        parsers() if points else parsers(path)
    where = (
        f"CRAWLER_PARSERS: {path} " if how == "setting" else "entry point mine (crawler.parsers)"
    )
    assert str(stopped.value).startswith(where)
    assert message in str(stopped.value)


def test_a_parser_that_raises_costs_its_pages_the_text_and_is_logged_once(
    package: str, caplog: pytest.LogCaptureFixture
) -> None:
    registry = parsers(f"{package}.Notes")
    for _ in range(3):
        with pytest.raises(Unreadable, match="the parser notes is broken: UnicodeDecodeError"):
            parsed(registry, "application/x-notes", b"\xff")
    assert len(caplog.messages) == 1
    assert "http://a.example/" in caplog.messages[0]


def test_a_parser_that_gives_nothing_is_broken(package: str) -> None:
    with pytest.raises(Unreadable, match="TypeError"):
        parsed(parsers(f"{package}.Wordless"), "application/x-notes", b"")


def test_a_parser_need_not_be_hashable(package: str) -> None:
    assert parsed(parsers(f"{package}.Unequal"), "application/x-notes", b"/a").links


def test_the_example_of_the_documentation_is_a_parser(tmp_path: Path) -> None:
    page = (PROJECT / "docs" / "parsers.md").read_text(encoding="utf-8")
    blocks = re.findall(r"(?m)(?:^    .*\n|^\n)+", page)
    (example,) = [block for block in blocks if "class " in block]
    (tmp_path / "my_parsers.py").write_text(textwrap.dedent(example))
    with foreign_parsers(tmp_path):
        registry = parsers("my_parsers.CalendarParser")
        body = b"BEGIN:VEVENT\r\nSUMMARY:A walk\r\nURL:https://a.example/walk\r\nEND:VEVENT\r\n"
        assert parsed(registry, "text/calendar", body) == Parsed(
            parser="calendar", text="A walk", links=(Link("https://a.example/walk"),)
        )
        with pytest.raises(Unreadable, match="no calendar"):
            parsed(registry, "text/calendar", b"Hello")


def test_the_table_of_the_documentation_is_ours() -> None:
    page = (PROJECT / "docs" / "parsers.md").read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| `(\w+)` \| (.+?) \| .+ \| (.+?) \|$", page)
    documented = {
        name: (set(re.findall(r"`([^`]+)`", types)), limit) for name, types, limit in rows
    }
    assert documented == {
        one.name: (set(one.types), f"{one.inline_max_bytes // 1024} KB")
        for one in (ours() for ours in BUILT_IN)
    }


class Noted:
    """A parser that writes down when it has had a body."""

    name = "noted"
    types = frozenset({"text/x-noted"})
    inline_max_bytes = 1 << 30

    def __init__(self, messages: list[str]) -> None:
        self._messages = messages

    def parse(self, source: Source) -> Parsed:
        self._messages.append("body")
        return Parsed()


def test_other_tasks_run_between_two_long_bodies() -> None:
    messages: list[str] = []
    source = Source("http://a.example/", "text/x-noted", bytes(1_000_000))

    async def other() -> None:
        while messages.count("body") < 3:
            messages.append("turn")
            await asyncio.sleep(0)

    async def scenario() -> None:
        registry, parser = parsers(), Noted(messages)
        await asyncio.gather(*(registry.parse(source, parser) for _ in range(3)), other())

    asyncio.run(scenario())
    assert "body body" not in " ".join(messages)
