"""What a page asks for while it is rendered, with a port and a loop of the test's own: whose turn
is used, what of it counts, and what is left out."""

from __future__ import annotations

import asyncio
import dataclasses
import gzip
import time
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

from crawler.download.http_head import AnswerHead
from crawler.download.page_requests import (
    _IDLE_S,
    PageRequests,
    RememberedAnswers,
    RequestParts,
)
from crawler.download.port import Fetched, WireRequest
from crawler.loop.life import CarriedExchanges
from crawler.model.page import Exchange
from crawler.model.types import (
    Answer,
    BorrowedTurn,
    Candidate,
    HostKey,
    NotItsTurn,
    NoTurn,
    Pace,
)
from crawler.model.url import authority_of
from crawler.policy.rendering import LeftOut
from crawler.policy.robots_cache import RobotsAllowed, RobotsFetchResult, RobotsUnknown
from crawler.render.browser import BrowserAnswer, BrowserRequest

JSON = "Content-Type: application/json"


class Network:
    """Answers by path: a status, fields, a body; those in `held` not before they are let go."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, list[str], bytes]] = {}
        self.held: dict[str, asyncio.Event] = {}
        self.sent: list[str] = []
        self.fields: list[dict[bytes, bytes]] = []

    async def fetch(self, wire: WireRequest, watch: Any) -> Fetched:
        assert watch.may_send()
        path, began = urlsplit(wire.url).path, time.time()
        self.sent.append(wire.url)
        self.fields.append(dict(wire.fields))
        if path in self.held:
            await self.held[path].wait()
        status, fields, body = self.answers.get(path, (200, [JSON], b"{}"))
        raw = "\r\n".join([f"HTTP/1.1 {status} x", *fields, "", ""]).encode()
        head = AnswerHead(raw, raw, status, len(raw))
        watch.note_head(head)

        async def pieces() -> AsyncIterator[bytes]:
            for at in range(0, len(body), 1 << 16):
                yield body[at : at + (1 << 16)]

        kept = await watch.keep(pieces(), watch.room(head))
        exchange = Exchange(
            url=wire.url,
            at=began,
            duration_s=0.0,
            request_head=b"GET / HTTP/1.1\r\n\r\n",
            head=raw,
            body=kept.body,
            ip="127.0.0.9",
            truncated=kept.truncated,
        )
        return Fetched(exchanges=(exchange,), head=head)

    async def close(self) -> None: ...


class Turns:
    """The loop, as far as pages ask it."""

    def __init__(self) -> None:
        self.busy: set[str] = set()
        self.asides: list[Answer] = []
        self.own_heads: list[int] = []
        self.turn_heads: list[tuple[int, int]] = []
        self.given_back: list[tuple[int, list[Answer]]] = []
        self.borrowed = 0

    def may_send(self, life: object) -> bool:
        return True

    def note_head(self, life: object, status: int, retry_after: bytes | None) -> None:
        self.own_heads.append(status)

    def note_aside(self, life: object, answer: Answer) -> Answer:
        self.asides.append(answer)
        return answer

    async def borrow(self, host: HostKey, url: str, until: float) -> BorrowedTurn | NotItsTurn:
        if host in self.busy:
            return NotItsTurn(host, NoTurn.LEASED)
        self.borrowed += 1
        return BorrowedTurn(self.borrowed, host, Pace(), time.time(), until, until)

    def note_turn_head(self, turn: BorrowedTurn, url: str, status: int, *about: object) -> bool:
        self.turn_heads.append((turn.id, status))
        return True

    def give_back(self, turn: BorrowedTurn, url: str, answers: Any, **about: object) -> Any:
        self.given_back.append((turn.id, list(answers)))


def candidate(url: str) -> Candidate:
    return Candidate(url=url, key=hash(url), host=HostKey(urlsplit(url).netloc), domain="x")


class World:
    def __init__(self) -> None:
        self.network, self.turns = Network(), Turns()
        robots: Any = SimpleNamespace(verdict=lambda url, now: RobotsAllowed())
        options: Any = SimpleNamespace(max_bytes=lambda *about: 1 << 40)
        memory: Any = SimpleNamespace(share_of=lambda life: None, add=lambda share, size: None)
        loop: Any = self.turns
        self.parts = RequestParts(
            port=self.network,
            loop=loop,
            robots=robots,
            candidate_of=candidate,
            options=options,
            memory=memory,
            now=time.time,
            fail=lambda error: None,
            remembered=RememberedAnswers(time.time),
            timeout_s=10.0,
            max_retry_after_s=100.0,
            page_s=15.0,
        )

    def page(self) -> PageRequests:
        lease = SimpleNamespace(address=None)
        life: Any = SimpleNamespace(candidate=candidate("http://own.test/"), lease=lease)
        return PageRequests(self.parts, life, [], proxy="", with_requisites=False)

    async def sent(self, path: str) -> None:
        while not any(url.endswith(path) for url in self.network.sent):
            await asyncio.sleep(0)


def ask(url: str, kind: str = "fetch", origin: str = "") -> BrowserRequest:
    fields = {"origin": origin} if origin else {}
    return BrowserRequest(url=url, method="GET", kind=kind, fields=fields)


def in_world(live: Callable[[World], Any]) -> World:
    async def lived() -> World:
        world = World()
        await live(world)
        return world

    return asyncio.run(lived())


def test_a_request_that_is_cut_off_counts_for_its_host():
    async def live(world: World) -> None:
        for host in ("cdn.test", "own.test"):
            page = world.page()
            world.network.held["/long"] = asyncio.Event()
            asked = asyncio.ensure_future(page.answer(ask(f"http://{host}/long")))
            await world.sent(f"{host}/long")
            await page.end()
            await asyncio.gather(asked, return_exceptions=True)

    world = in_world(live)
    ((_, answers),) = world.turns.given_back
    assert [answer.error for answer in (*answers, *world.turns.asides)] == ["cancelled"] * 2


def test_a_turn_is_kept_while_a_request_is_under_way():
    async def live(world: World) -> None:
        page = world.page()
        world.network.answers["/slow"] = (429, [JSON, "Retry-After: 60"], b"")
        world.network.held["/slow"] = asyncio.Event()
        await page.answer(ask("http://cdn.test/first"))
        asked = asyncio.ensure_future(page.answer(ask("http://cdn.test/slow")))
        await world.sent("/slow")
        await asyncio.sleep(2 * _IDLE_S)
        assert not world.turns.given_back
        world.network.held["/slow"].set()
        await asked
        assert await page.answer(ask("http://cdn.test/third")) is None
        await page.end()

    world = in_world(live)
    assert world.turns.turn_heads == [(1, 429)]
    assert world.turns.own_heads == []
    assert [[each.status for each in answers] for _, answers in world.turns.given_back] == [
        [200, 429]
    ]


def test_a_turn_is_given_back_when_it_is_not_used():
    async def live(world: World) -> None:
        page = world.page()
        await page.answer(ask("http://cdn.test/first"))
        while not world.turns.given_back:
            await asyncio.sleep(0.01)
        await page.answer(ask("http://cdn.test/second"))
        await page.end()

    world = in_world(live)
    assert [number for number, _ in world.turns.given_back] == [1, 2]


def test_what_a_page_is_given_is_bounded_as_sent_and_as_decoded():
    async def live(world: World) -> None:
        page, gzipped = world.page(), [JSON, "Content-Encoding: gzip"]
        world.network.answers["/bomb"] = (200, gzipped, gzip.compress(b"a" * 6_000_000))
        given = [await page.answer(ask(f"http://own.test/bomb?{n}")) for n in range(20)]
        assert sum(len(answer.body) for answer in given if answer) == 6_000_000
        assert page.left_out == {LeftOut.BYTES: 19}
        page = world.page()
        world.network.answers["/large"] = (200, [JSON], b"a" * 6_000_000)
        hosts = [f"http://cdn-{n}.test/large" for n in range(20)]
        answers = await asyncio.gather(*(page.answer(ask(url)) for url in hosts))
        assert sum(len(each.body) for each in page.exchanges) <= 11_000_000
        assert sum(1 for answer in answers if answer) <= 1
        await page.end()

    in_world(live)


def test_other_origins_are_sent_only_what_needs_no_leave():
    """A browser would ask them first, by OPTIONS, whether a page may send its own fields."""

    async def live(world: World) -> None:
        page = world.page()
        fields = {"Origin": "http://own.test", "Accept": "*/*", "Metadata-Flavor": "x"}
        for url in ("http://own.test/data", "http://cdn.test/data"):
            request = BrowserRequest(url=url, method="GET", kind="fetch", fields=fields)
            assert await page.answer(request) is not None
        await page.end()

    own, other = in_world(live).network.fields
    assert own == {b"Origin": b"http://own.test", b"Accept": b"*/*", b"Metadata-Flavor": b"x"}
    assert other == {b"Origin": b"http://own.test", b"Accept": b"*/*"}


def test_only_successes_are_remembered_and_only_for_whom_they_are():
    async def live(world: World) -> None:
        network, script = world.network, "http://cdn.test/app.js"
        network.answers["/app.js"] = (503, [], b"")
        answer = await world.page().answer(ask(script, "script"))
        assert answer is not None and answer.status == 503
        network.answers["/app.js"] = (200, ["Access-Control-Allow-Origin: http://a.test"], b"1")
        origins = ["http://a.test", "http://b.test", "http://a.test", "", ""]
        for origin in origins:
            page = world.page()
            assert await page.answer(ask(script, "script", origin)) is not None
            await page.end()
        assert len(network.sent) == 1 + 3
        network.answers["/all.js"] = (200, ["Access-Control-Allow-Origin: *"], b"1")
        for origin in origins:
            page = world.page()
            await page.answer(ask("http://cdn.test/all.js", "script", origin))
            await page.end()
        assert len(network.sent) == 1 + 3 + 1
        await world.page().answer(ask("http://cdn.test/all.js", "fetch"))
        assert len(network.sent) == 1 + 3 + 1 + 1  # data are asked for

    in_world(live)


def test_a_redirect_to_itself_is_asked_for_once():
    async def live(world: World) -> None:
        world.network.answers["/loop"] = (302, ["Location: /loop"], b"")
        page = world.page()
        assert await page.answer(ask("http://own.test/loop")) is None
        assert page.left_out == {LeftOut.REDIRECTS: 1}
        assert len(world.network.sent) == 1

    in_world(live)


def test_a_busy_host_is_waited_for_once_a_page():
    async def live(world: World) -> None:
        world.parts = dataclasses.replace(world.parts, wait_s=0.3)
        world.turns.busy.add("cdn.test")
        page = world.page()
        began = time.monotonic()
        asks = [page.answer(ask(f"http://cdn.test/{n}")) for n in range(20)]
        assert await asyncio.gather(*asks) == [None] * 20
        assert time.monotonic() - began < 3.0  # twenty waits would be six seconds
        assert page.left_out == {LeftOut.HOST: 20}

    in_world(live)


def test_what_is_remembered_is_bounded_and_ends():
    clock, script = [1000.0], ask("http://cdn.test/", "script")
    remembered = RememberedAnswers(lambda: clock[0], most_bytes=1000)

    def put(url: str, size: int, control: str = "") -> None:
        fields = {"cache-control": control} if control else {}
        answer = BrowserAnswer(status=200, fields=fields, body=b"x" * size)
        remembered.put(url, script, answer, CarriedExchanges(()))

    put("usual", 10)
    put("long", 10, "public, max-age=1800")
    put("for ever", 10, "max-age=31536000, immutable")
    put("never", 10, "No-Store")
    put("asked again", 10, "no-cache")
    assert remembered.get("never", script) is None
    clock[0] += 599
    names = {"usual", "long", "for ever", "asked again"}
    assert all(remembered.get(name, script) for name in names)
    put("usual", 10)  # what was given from memory is not made younger
    clock[0] += 2
    assert {name for name in names if remembered.get(name, script)} == {"long", "for ever"}
    clock[0] += 3000
    assert not any(remembered.get(name, script) for name in names)
    for number in range(100):
        put(str(number), 100)
    assert remembered.size_bytes == 1000
    assert remembered.get("99", script) is not None
    assert remembered.get("89", script) is None
    put("huge", 251)
    assert remembered.get("huge", script) is None
    assert remembered.get("99", script) is not None


def test_the_robots_txt_of_other_hosts_takes_no_room_from_what_a_page_needs():
    async def live(world: World) -> None:
        known: set[str] = set()

        def verdict(url: str, now: float) -> RobotsAllowed | RobotsUnknown:
            authority = authority_of(url)
            return (
                RobotsAllowed() if authority in known else RobotsUnknown(f"{authority}/robots.txt")
            )

        def store(authority: str, result: RobotsFetchResult, now: float) -> None:
            known.add(authority)

        robots: Any = SimpleNamespace(verdict=verdict, store_result=store)
        world.parts = dataclasses.replace(world.parts, robots=robots)
        world.network.answers["/robots.txt"] = (404, [], b"")
        page = world.page()
        asked = [ask(f"http://cdn-{n}.test/lib.js", "script") for n in range(60)]
        answers = await asyncio.gather(*map(page.answer, asked))
        assert all(answers)
        more = [await page.answer(ask(f"http://own.test/{n}")) for n in range(6)]
        assert [answer is not None for answer in more] == [True] * 4 + [False] * 2
        assert page.left_out == {LeftOut.REQUESTS: 2}
        await page.end()

    in_world(live)


def test_a_page_that_asks_very_many_hosts_has_not_all_their_robots_txt_fetched():
    async def live(world: World) -> None:
        robots: Any = SimpleNamespace(
            verdict=lambda url, now: RobotsUnknown(f"{authority_of(url)}/robots.txt"),
            store_result=lambda *about: None,
        )
        world.parts = dataclasses.replace(world.parts, robots=robots)
        page = world.page()
        for number in range(200):
            await page.answer(ask(f"http://cdn-{number}.test/"))
        await page.end()
        assert len(world.network.sent) == 64

    in_world(live)
