"""Soft 404: which pages look like an error, which probe is sent, and what its answer means."""

from __future__ import annotations

import pytest

from crawler.config.settings import ContentSettings
from crawler.loop.precheck import (
    ProbeResult,
    Probes,
    SoftErrorVerdict,
)
from crawler.model.types import HostKey
from crawler.page.soft404 import MissingPageAnswer as Claim
from crawler.page.soft404 import (
    Soft404Record,
    TextHashes,
    is_soft_404,
    kind_of,
    looks_like_error,
    probe_of,
    record_of,
    words_of,
)

HOST = HostKey("example.com")
PAGE = "https://example.com/news/2024/item.html?id=3"
NOW = 1_000_000.0


@pytest.mark.parametrize(
    ("title", "text", "suspected"),
    [
        pytest.param("Page not found", "We looked everywhere.", True, id="in its title"),
        pytest.param("Shop", "Sorry, this page does not exist.", True, id="in its text"),
        pytest.param("404", "", True, id="the bare number"),
        pytest.param("Fehler", "Die Seite wurde nicht gefunden", True, id="in German"),
        pytest.param("エラー", "ページが見つかりません", True, id="in Japanese"),
        pytest.param("Room 4040", "Open from 9 to 5.", False, id="a number that holds a 404"),
        pytest.param("News", "The lost city was found.", False, id="something was found"),
        pytest.param("Peugeot 404", "word " * 500, False, id="a long page about a 404"),
        pytest.param("", "", False, id="nothing at all"),
    ],
)
def test_texts_that_look_like_an_error(title: str, text: str, suspected: bool) -> None:
    assert looks_like_error(title, text) is suspected


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        pytest.param(PAGE, "https://example.com/news/2024/*.html", id="directory and extension"),
        pytest.param("https://example.com/a/b", "https://example.com/a/*", id="no extension"),
        pytest.param("https://example.com/a/", "https://example.com/a/*", id="a directory itself"),
        pytest.param("http://example.com:81/x", "http://example.com:81/*", id="another port"),
        pytest.param("https://example.com/?p=1", None, id="the front page with a query"),
        pytest.param("https://example.com/", None, id="the front page"),
        pytest.param("https://example.com/a/.x", "https://example.com/a/*", id="a hidden name"),
    ],
)
def test_pages_of_one_kind_share_an_answer(url: str, kind: str | None) -> None:
    assert kind_of(url) == kind


def test_the_probe_is_of_the_kind_it_asks_for() -> None:
    probe = probe_of(PAGE, "x7")
    assert probe.startswith("https://example.com/news/2024/") and probe.endswith("x7.html")
    assert kind_of(probe) == kind_of(PAGE)


@pytest.mark.parametrize(
    ("status", "claim"),
    [
        pytest.param(404, Claim.ERROR, id="an honest host"),
        pytest.param(302, Claim.ERROR, id="sent elsewhere: the redirect tells it from a page"),
        pytest.param(403, Claim.ERROR, id="forbidden is no page"),
        pytest.param(200, Claim.PAGE, id="a page for any name"),
        pytest.param(503, Claim.NOTHING, id="in trouble: not known"),
        pytest.param(429, Claim.NOTHING, id="too many requests: not known"),
        pytest.param(None, Claim.NOTHING, id="no answer"),
    ],
)
def test_the_claim_of_a_status(status: int | None, claim: Claim) -> None:
    assert record_of(status, b"d", TextHashes(), NOW).answer is claim


LOST = "Sorry, we looked for {} everywhere and it is not found. Try the search, or go home."


@pytest.mark.parametrize(
    ("claim", "digest", "text", "soft"),
    [
        pytest.param(Claim.PAGE, b"d", "anything", True, id="the very bytes"),
        pytest.param(Claim.PAGE, b"e", LOST.format("item.html"), True, id="its own name in it"),
        pytest.param(Claim.PAGE, b"e", LOST.format("it") + " 12:30", True, id="the time of day"),
        pytest.param(Claim.PAGE, b"e", "A list of 404 words", False, id="other words"),
        pytest.param(Claim.PAGE, b"e", "", False, id="no text to compare"),
        pytest.param(Claim.ERROR, b"d", LOST, False, id="an honest host"),
        pytest.param(Claim.NOTHING, b"d", LOST, False, id="not known"),
    ],
)
def test_a_page_is_compared_with_the_answer(
    claim: Claim, digest: bytes, text: str, soft: bool
) -> None:
    probe = probe_of(PAGE, "0a7")
    words = words_of(probe, "Not found", LOST.format("gossamer0a7.html"))
    known = Soft404Record(claim, NOW, b"d", words)
    assert is_soft_404(known, digest, words_of(PAGE, "Not found", text)) is soft


@pytest.mark.parametrize(
    ("title", "soft"),
    [
        pytest.param("Not found", True, id="the same title"),
        pytest.param("Not found: item", True, id="and the name that was asked for"),
        pytest.param("Red enamel mug - not available", False, id="a product that is sold out"),
        pytest.param("", False, id="none"),
    ],
)
def test_the_title_counts_too(title: str, soft: bool) -> None:
    probe = probe_of(PAGE, "0a7")
    known = Soft404Record(Claim.PAGE, NOW, b"d", words_of(probe, "Not found", LOST))
    assert is_soft_404(known, b"e", words_of(PAGE, title, LOST)) is soft


class Memory:
    def __init__(self) -> None:
        self.records: dict[str, Soft404Record] = {}

    def get(self, kind: str) -> Soft404Record | None:
        return self.records.get(kind)

    def put(self, kind: str, record: Soft404Record) -> None:
        self.records[kind] = record


def test_a_host_is_asked_once_for_each_kind() -> None:
    probes = Probes(Memory(), lambda: "name", ContentSettings())
    assert probes.judge(PAGE, HOST, ProbeResult(200, b"d"), NOW) is SoftErrorVerdict.PROBE
    probe = probes.due_probe(HOST)
    assert probe is not None
    probes.store_result(HOST, probe.kind, ProbeResult(200, b"d"), NOW)
    assert probes.due_probe(HOST) is None
    assert probes.judge(PAGE, HOST, ProbeResult(200, b"d"), NOW) is SoftErrorVerdict.SOFT_404
    assert probes.judge(PAGE, HOST, ProbeResult(200, b"another"), NOW) is SoftErrorVerdict.PAGE
    other = "https://example.com/elsewhere/item.html"
    assert probes.judge(other, HOST, ProbeResult(200, b"d"), NOW) is SoftErrorVerdict.PROBE


def test_an_answer_is_forgotten_after_a_week() -> None:
    probes = Probes(Memory(), lambda: "name", ContentSettings())
    assert probes.judge(PAGE, HOST, ProbeResult(200, b"d"), NOW) is SoftErrorVerdict.PROBE
    probes.store_result(HOST, kind_of(PAGE) or "", ProbeResult(404), NOW)
    assert probes.judge(PAGE, HOST, ProbeResult(200, b"d"), NOW + 86_400) is SoftErrorVerdict.PAGE
    assert (
        probes.judge(PAGE, HOST, ProbeResult(200, b"d"), NOW + 8 * 86_400) is SoftErrorVerdict.PROBE
    )


def test_a_front_page_is_a_page() -> None:
    probes = Probes(Memory(), lambda: "name", ContentSettings())
    assert (
        probes.judge("https://example.com/", HOST, ProbeResult(200, b"d"), NOW)
        is SoftErrorVerdict.PAGE
    )


def test_without_soft_404_nothing_is_probed() -> None:
    probes = Probes(Memory(), lambda: "name", ContentSettings(soft_404=False))
    assert probes.judge(PAGE, HOST, ProbeResult(200, b"d"), NOW) is SoftErrorVerdict.PAGE


def test_an_answer_to_another_question_teaches_nothing() -> None:
    probes = Probes(Memory(), lambda: "name", ContentSettings())
    assert probes.judge(PAGE, HOST, ProbeResult(200, b"d"), NOW) is SoftErrorVerdict.PROBE
    probes.store_result(HOST, "https://example.com/other/*", ProbeResult(404), NOW)
    assert probes.judge(PAGE, HOST, ProbeResult(200, b"d"), NOW) is SoftErrorVerdict.PROBE
