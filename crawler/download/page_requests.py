"""Answer what a page asks for while a browser makes it: through the fetch port, as any request of
the crawl.

Rule: robots.txt, the operator's rules, inside addresses, caps and rests hold for all of it. What is
for the page's own host is under its lease, what is for another under a turn that is borrowed for
it; one after the other on each. What is not answered is counted by its reason.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter, OrderedDict
from collections.abc import AsyncIterable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Final, Protocol

from scrapy.crawler import Crawler
from scrapy.http import Headers

from crawler.assembly.crawl import Crawl
from crawler.config.settings import RENDER_BYTES, RENDER_REQUEST_S, RENDER_REQUESTS
from crawler.content.body_memory import BodyMemory
from crawler.download.handler import FetchHandler
from crawler.download.http_head import AnswerHead
from crawler.download.port import Fetched, FetchPort, KeptBody, WireRequest
from crawler.download.watch import headers_of, retry_after_of
from crawler.engine.errors import LeaseEnded, error_of
from crawler.loop.life import CarriedExchanges, Life
from crawler.model.page import (
    AddressRefused,
    DownloadOptions,
    Exchange,
    Flag,
    Truncated,
    head_fields,
    header_value,
)
from crawler.model.types import (
    HTTP_OK,
    Answer,
    BorrowedTurn,
    Candidate,
    CrawlerError,
    HostKey,
    NotItsTurn,
    NoTurn,
    Rest,
    StoreUnavailable,
)
from crawler.model.url import authority_of, fetch_form
from crawler.page.encodings import codings_of, undo_codings
from crawler.policy.politeness import is_trouble, retry_after_s
from crawler.policy.redirects import REDIRECTS, location_text
from crawler.policy.refusal import Refusal
from crawler.policy.rendering import MOMENTARY, LeftOut, refused_kind
from crawler.policy.robots_cache import (
    MAX_REDIRECTS,
    RobotsAllowed,
    RobotsCache,
    RobotsFetchResult,
    RobotsUnknown,
)
from crawler.render.browser import BrowserAnswer, BrowserRequest

_MOST_HOPS: Final = 5
_WAIT_S: Final = 5.0  # for the turn of another host; Heritrix and browsers wait longer, people not
_IDLE_S: Final = 0.5  # a borrowed turn is given back when nothing was asked for under it so long
_LOOK_S: Final = (
    0.25  # between two looks for a turn of a host of which it is not known when it ends
)
_REMEMBERED_BYTES: Final = 64 << 20
_REMEMBERED_S: Final = 600.0  # at least, if the server does not forbid it
_LONGEST_S: Final = 3600.0
_REMEMBERED_KINDS: Final = frozenset({"script", "stylesheet", "font", "image", "manifest"})

_IDENTITY: Final = frozenset((b"user-agent", b"from", b"accept-language", b"accept-encoding"))
"""Fields that a page's requests have in common with its own."""
_NOT_OF_BROWSER: Final = frozenset(
    (
        *("host", "connection", "cookie", "user-agent", "from", "te", "upgrade", "range"),
        *("accept-language", "accept-encoding", "pragma", "cache-control"),
    )
)
_NOT_OF_BROWSER_BEGIN: Final = ("sec-", "proxy-", "upgrade-", "if-", ":")
_FOR_OTHERS: Final = frozenset(("accept", "content-language", "origin", "referer"))
"""Fields that a page may send to another origin without asking it first, which we do not."""
_NOT_FOR_BROWSER: Final = frozenset(
    (b"Content-Encoding", b"Content-Length", b"Transfer-Encoding", b"Connection", b"Set-Cookie")
)
_NEVER: Final = frozenset(
    {NoTurn.LEFT, NoTurn.REFUSED, NoTurn.PAUSED, NoTurn.UPLINK, NoTurn.NOT_LENT}
)
"""Why a host lends no turn for longer than a page waits."""
_MAX_AGE: Final = re.compile(r"\bmax-age\s*=\s*\"?([0-9]{1,9})", re.I)


class PageLoop(Protocol):
    """What is needed of `Loop`."""

    def may_send(self, life: Life) -> bool: ...

    def note_head(self, life: Life, status: int, retry_after: bytes | None) -> None: ...

    def note_aside(self, life: Life, answer: Answer) -> Answer: ...

    async def borrow(self, host: HostKey, url: str, until: float) -> BorrowedTurn | NotItsTurn: ...

    def note_turn_head(
        self,
        turn: BorrowedTurn,
        url: str,
        status: int,
        retry_after: bytes | None,
        fetched_s: float,
        crawl_delay_s: float | None = None,
    ) -> bool: ...

    def give_back(
        self,
        turn: BorrowedTurn,
        url: str,
        answers: Sequence[Answer],
        *,
        crawl_delay_s: float | None = None,
        body_bytes: int = 0,
        address: str = "",
    ) -> Rest: ...


@dataclass(frozen=True, slots=True)
class _Remembered:
    """An answer, and what of its exchanges is not in the archive yet."""

    until: float
    answer: BrowserAnswer
    carried: CarriedExchanges
    size_bytes: int


class RememberedAnswers:
    """Answers that pages of many URLs and hosts ask for: scripts and styles. Bounded by bytes.

    What was answered to a request with an Origin is for that origin, and so is what was answered to
    one without; unless any may have it. Who is given an answer carries its exchanges to the
    archive, unless another page has: the page for which it came may be fetched again, or not kept.
    """

    def __init__(self, now: Callable[[], float], most_bytes: int = _REMEMBERED_BYTES) -> None:
        self._now = now
        self._most_bytes = most_bytes
        # By URL and origin; of what any may have *.
        self._answers: OrderedDict[tuple[str, str], _Remembered] = OrderedDict()
        self.size_bytes = 0

    def get(self, url: str, request: BrowserRequest) -> _Remembered | None:
        """Return what *url* was answered, if that still counts, and for *request*."""
        if request.kind not in _REMEMBERED_KINDS:
            return None
        for origin in ("*", request.fields.get("origin", "")):
            known = self._answers.get((url, origin))
            if known is None:
                continue
            if known.until > self._now():
                self._answers.move_to_end((url, origin))
                return known
            self._forget((url, origin))
        return None

    def put(
        self,
        url: str,
        request: BrowserRequest,
        answer: BrowserAnswer,
        carried: CarriedExchanges,
    ) -> None:
        """Remember *answer* to *request*, if that is a script, a style or their like, and it a
        success: for as long as its Cache-Control says, ten minutes at least and an hour at most; if
        that says "no-store", not at all."""
        control = answer.fields.get("cache-control", "")
        if request.kind not in _REMEMBERED_KINDS or answer.status not in HTTP_OK:
            return
        if "no-store" in control.lower() or len(answer.body) > self._most_bytes // 4:
            return  # so large a one would drive out all others
        said = _MAX_AGE.search(control)
        lasts_s = min(_LONGEST_S, max(_REMEMBERED_S, float(said[1]) if said else 0.0))
        is_for_all = answer.fields.get("access-control-allow-origin") == "*"
        key = url, "*" if is_for_all else request.fields.get("origin", "")
        known = self._answers.get(key)
        if known is not None and known.until > self._now():
            return  # it may be this one that was given
        self._forget(key)
        size = len(answer.body) + sum(len(each.body) for each in carried.exchanges)
        self._answers[key] = _Remembered(self._now() + lasts_s, answer, carried, size)
        self.size_bytes += size
        while self.size_bytes > self._most_bytes:
            self._forget(next(iter(self._answers)))

    def _forget(self, key: tuple[str, str]) -> None:
        known = self._answers.pop(key, None)
        if known is not None:
            self.size_bytes -= known.size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestParts:
    """What the requests of all pages share."""

    port: FetchPort
    loop: PageLoop
    robots: RobotsCache
    candidate_of: Callable[[str], Candidate | Refusal]
    """Judges a URL, a fetch form, as what a page needs to be shown."""
    options: DownloadOptions
    memory: BodyMemory
    now: Callable[[], float]
    fail: Callable[[CrawlerError], None]
    """Ends the crawl after a store has failed."""
    remembered: RememberedAnswers
    timeout_s: float  # of one request
    max_retry_after_s: float
    page_s: float  # in which a page asks for anything
    wait_s: float = _WAIT_S  # for the turn of another host


def request_parts(
    crawl: Crawl, crawler: Crawler, page_s: float, wait_s: float = _WAIT_S
) -> RequestParts:
    """Return the parts for pages that ask for something in *page_s*, and wait for the turn of
    another host for *wait_s*, from the crawl's own."""
    options = crawl.download_options()

    def candidate_of(url: str) -> Candidate | Refusal:
        admission = crawl.selection.allowed_origins.admission
        return admission.candidate(url, depth=1, requisite=1)

    return RequestParts(
        port=FetchHandler.from_crawler(crawler).port,
        loop=crawl.loop,
        robots=crawl.loop.precheck.robots,
        candidate_of=candidate_of,
        options=options,
        memory=crawl.fetching.body_memory,
        now=crawl.leases.clock.now,
        fail=crawl.lifecycle.fail,
        remembered=RememberedAnswers(crawl.leases.clock.now),
        timeout_s=min(RENDER_REQUEST_S, options.total_timeout_s),
        max_retry_after_s=crawl.settings.config.politeness.max_retry_after_s,
        page_s=page_s,
        wait_s=wait_s,
    )


class RequestNotSent(CrawlerError):
    """A request of a page that is left out."""

    def __init__(self, why: LeftOut) -> None:
        super().__init__(why)
        self.why = why


@dataclass(eq=False)
class _Turn:
    """A turn that was borrowed of a host, and what came under it."""

    borrowed: BorrowedTurn
    url: str  # the first that was asked for
    answers: list[Answer] = field(default_factory=list)
    body_bytes: int = 0  # of these
    address: str = ""  # from which they came
    crawl_delay_s: float | None = None


@dataclass(eq=False)
class _Host:
    """A host that a page asks: its own, or another in a turn that is borrowed of it."""

    name: HostKey
    is_own: bool  # of the page, so that its lease holds
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # one request at a time
    turn: _Turn | None = None
    is_stopped: bool = False  # it is asked for nothing more
    waiting: int = 0  # requests that want it
    given_up_at: float | None = None  # when its turn is waited for no longer; None: it is not
    end: asyncio.TimerHandle | None = None  # of its turn


class PageRequests:
    """What one page asks for. After `end` nothing is sent any more, and no turn is kept."""

    def __init__(
        self,
        parts: RequestParts,
        life: Life,
        fields: Sequence[tuple[bytes, bytes]],
        *,
        proxy: str,
        with_requisites: bool,
    ) -> None:
        """*fields*: the head of the page's own request, as it was sent."""
        self._parts = parts
        self._life = life
        self._fields = [pair for pair in fields if pair[0].lower() in _IDENTITY]
        self._own_fields = [pair for pair in fields if pair[0].lower() == b"authorization"]
        self._proxy = proxy
        self._with_requisites = with_requisites
        self._hosts: dict[HostKey, _Host] = {}
        self._answers: dict[str, asyncio.Task[BrowserAnswer | None]] = {}
        self._came_bytes = 0  # of bodies, as sent
        self._given_bytes = 0  # of bodies, as decoded
        self._robots = 0  # files of other hosts that were asked for
        self._is_ended = False
        self.sent = 0  # without these
        self.exchanges: list[Exchange] = []
        self.carried: list[CarriedExchanges] = []  # of what is remembered
        self.given: set[str] = set()  # URLs that were answered, by no host in trouble
        self.left_out: Counter[LeftOut] = Counter()
        self._met_trouble = False

    @property
    def lacks(self) -> list[LeftOut]:
        """Why the page was not given what it may get at another time. The answer of a host in
        trouble is given to it, and is not what it asked for."""
        lacks = {*self.left_out, LeftOut.TROUBLE} if self._met_trouble else self.left_out
        return [each for each in LeftOut if each in MOMENTARY and each in lacks]

    async def answer(self, request: BrowserRequest) -> BrowserAnswer | None:
        """Answer *request*, each URL once; None: it is left out."""
        url = fetch_form(request.url)
        why = refused_kind(request.kind, request.method, with_requisites=self._with_requisites) or (
            LeftOut.URL if url is None else None
        )
        if why is not None or url is None or self._is_ended:
            self.left_out[why or LeftOut.LEASE] += 1
            return None
        task = self._answers.get(url)
        if task is None:
            task = asyncio.ensure_future(self._answered(url, request))
            self._answers[url] = task
        return await asyncio.shield(task)

    async def end(self) -> None:
        """Send nothing more, and give back what is borrowed."""
        self._is_ended = True
        for task in self._answers.values():
            task.cancel()
        await asyncio.gather(*self._answers.values(), return_exceptions=True)
        for host in self._hosts.values():
            self._give_back(host)

    async def _answered(self, url: str, request: BrowserRequest) -> BrowserAnswer | None:
        try:
            answer = await self._found(url, request)
        except RequestNotSent as left:
            self.left_out[left.why] += 1
            return None
        if answer.status < 500 and answer.status != 429:
            self.given.add(url)
        return answer

    async def _found(self, url: str, request: BrowserRequest) -> BrowserAnswer:
        asked, came = [url], list[Exchange]()
        while len(asked) <= _MOST_HOPS:
            known = self._recalled(url, request)
            if known is None:
                known, url, exchanges = await self._asked(url, request)
                came += exchanges
            if not url or known.status not in REDIRECTS:
                carried = CarriedExchanges(tuple(came))
                self.carried.append(carried)
                self._parts.remembered.put(asked[0], request, known, carried)
                return self._given(known)
            if url in asked:
                break
            asked.append(url)
        raise RequestNotSent(LeftOut.REDIRECTS)

    def _recalled(self, url: str, request: BrowserRequest) -> BrowserAnswer | None:
        """Return what *url* was answered when another page asked for it."""
        known = self._parts.remembered.get(url, request)
        if known is None:
            return None
        self.exchanges += known.carried.exchanges
        self.carried.append(known.carried)
        return known.answer

    def _given(self, answer: BrowserAnswer) -> BrowserAnswer:
        """Return *answer*, if the page may still have so much."""
        if self._given_bytes + len(answer.body) > RENDER_BYTES:
            raise RequestNotSent(LeftOut.BYTES)
        self._given_bytes += len(answer.body)
        return answer

    async def _asked(
        self, url: str, request: BrowserRequest
    ) -> tuple[BrowserAnswer, str, Sequence[Exchange]]:
        """Return the answer to the request for *url*, where it leads, if that is elsewhere, and
        what was fetched."""
        candidate = self._parts.candidate_of(url)
        if isinstance(candidate, Refusal):
            raise RequestNotSent(LeftOut.URL)
        host = self._host(candidate)
        host.waiting += 1
        self._keep_turn(host)
        try:
            async with host.lock:
                await self._take_turn(host, candidate, request)
                known = self._recalled(url, request)
                if known is not None:  # of another page, which had the turn before
                    return known, "", ()
                await self._obey_robots(host, url)
                fetched = await self._fetch(host, url, request)
                if isinstance(fetched, str):
                    raise RequestNotSent(LeftOut.ERROR)
                most_bytes = RENDER_BYTES - self._given_bytes
                return *browser_answer(url, fetched, most_bytes), fetched.exchanges
        finally:
            host.waiting -= 1
            self._end_turn_later(host)

    def _host(self, candidate: Candidate) -> _Host:
        known = self._hosts.get(candidate.host)
        if known is None:
            is_own = candidate.host == self._life.candidate.host
            known = self._hosts[candidate.host] = _Host(candidate.host, is_own)
        return known

    async def _take_turn(self, host: _Host, candidate: Candidate, request: BrowserRequest) -> None:
        """Wait for the turn of another host, all requests of the page together no longer than
        `RequestParts.wait_s`. It is not needed if another page has got meanwhile what is asked
        for."""
        if host.is_own or host.turn is not None:
            return
        now, parts = self._parts.now, self._parts
        if host.given_up_at is None:
            host.given_up_at = now() + parts.wait_s
        while True:
            until = now() + parts.page_s + parts.timeout_s
            found = await parts.loop.borrow(host.name, candidate.url, until)
            if isinstance(found, BorrowedTurn):
                host.turn = _Turn(found, candidate.url)
                host.given_up_at, host.is_stopped = None, False
                return
            left_s = host.given_up_at - now()
            wait_s = _LOOK_S if found.at is None else max(found.at - now(), 0.01)
            if found.why in _NEVER or left_s <= 0 or (found.at or 0.0) > host.given_up_at:
                raise RequestNotSent(LeftOut.HOST)
            await asyncio.sleep(min(wait_s, left_s, _LOOK_S))
            if parts.remembered.get(candidate.url, request) is not None:
                return

    def _keep_turn(self, host: _Host) -> None:
        if host.end is not None:
            host.end.cancel()
            host.end = None

    def _end_turn_later(self, host: _Host) -> None:
        """Let others have the turn of *host* if the page asks it for nothing for a while."""
        if host.turn is not None and not host.waiting:
            self._keep_turn(host)
            host.end = asyncio.get_running_loop().call_later(_IDLE_S, self._give_back, host)

    def _give_back(self, host: _Host) -> None:
        self._keep_turn(host)
        turn, host.turn = host.turn, None
        if turn is None:
            return
        try:
            self._parts.loop.give_back(
                *(turn.borrowed, turn.url, turn.answers),
                crawl_delay_s=turn.crawl_delay_s,
                body_bytes=turn.body_bytes,
                address=turn.address,
            )
        except StoreUnavailable as error:
            self._parts.fail(error)  # it rests as after a crash

    async def _obey_robots(self, host: _Host, url: str) -> None:
        """Raise RequestNotSent if robots.txt forbids *url*. A file that is not known is fetched
        first, if it is on the same host."""
        robots, now = self._parts.robots, self._parts.now
        for _ in range(MAX_REDIRECTS + 1):
            verdict = robots.verdict(url, now())
            if isinstance(verdict, RobotsAllowed):
                if host.turn is not None:
                    host.turn.crawl_delay_s = verdict.crawl_delay_s
                return
            if not isinstance(verdict, RobotsUnknown):
                break
            where = self._parts.candidate_of(verdict.url)
            if isinstance(where, Refusal) or where.host != host.name:
                break
            result = await self._fetch_robots(host, verdict.url)
            robots.store_result(authority_of(url), result, now())
        raise RequestNotSent(LeftOut.ROBOTS)

    async def _fetch_robots(self, host: _Host, url: str) -> RobotsFetchResult:
        request = BrowserRequest(url=url, method="GET", kind="robots", fields={"accept": "*/*"})
        fetched = await self._fetch(host, url, request, is_kept=False)
        if isinstance(fetched, str):
            return RobotsFetchResult(url, error=fetched)
        exchange, headers = fetched.exchanges[-1], headers_of(head_fields(fetched.head.clean))
        decoded = undo_codings(
            exchange.body, codings_of(headers.getlist(b"Content-Encoding")), RENDER_BYTES
        )
        cut = (exchange.truncated.flag,) if exchange.truncated else ()
        status, location = fetched.head.status, header_value(headers, b"Location")
        return RobotsFetchResult.of_answer(
            url, status, location, decoded.body, (*decoded.flags, *cut)
        )

    async def _fetch(
        self, host: _Host, url: str, request: BrowserRequest, *, is_kept: bool = True
    ) -> Fetched | str:
        """Send the request, and note the answer at its host. Returns the word of an error of the
        host in place of an answer."""
        self._check(host, self.sent if is_kept else self._robots)
        parts, turn = self._parts, host.turn
        address = self._life.lease.address if turn is None else turn.borrowed.address
        wire = WireRequest(
            url=url,
            fields=tuple(self._fields_of(url, request)),
            proxy=self._proxy,
            address=None if self._proxy else address,
        )
        if is_kept:
            self.sent += 1
        else:
            self._robots += 1
        began, fetched = parts.now(), None
        error = "cancelled"  # if the page ends meanwhile: its server may be at work all the same
        try:
            async with asyncio.timeout(parts.timeout_s):
                fetched = await parts.port.fetch(wire, PartWatch(self, turn, url, began))
            error = ""
        except LeaseEnded as ended:
            error = ""
            raise RequestNotSent(LeftOut.LEASE) from ended
        except AddressRefused as refused:
            error = ""
            raise RequestNotSent(LeftOut.INSIDE) from refused
        except Exception as failed:
            error = error_of(failed, is_of_handler=True)
            if not error:
                raise
        finally:
            if fetched is not None or error:
                host.is_stopped = self._note(turn, parts.now() - began, fetched, error)
        if fetched is not None and is_kept:
            self.exchanges += fetched.exchanges
        return fetched or error

    def _note(
        self, turn: _Turn | None, seconds: float, fetched: Fetched | None, error: str
    ) -> bool:
        """Note how the host has answered a request, under its lease or *turn*; return whether it is
        asked for nothing more."""
        parts = self._parts
        answer = Answer(min(seconds, parts.timeout_s), error=error)
        if fetched is not None:
            exchange, asked = fetched.exchanges[-1], retry_after_of(fetched.head)
            longest_s = parts.max_retry_after_s
            answer = Answer(
                answer.duration_s,
                status=fetched.head.status,
                error="disconnect" if exchange.truncated is Truncated.DISCONNECT else "",
                retry_after_s=retry_after_s(asked, parts.now(), longest_s) if asked else None,
            )
            if turn is not None:
                turn.body_bytes += len(exchange.body)
                turn.address = exchange.ip
        if turn is None:
            parts.loop.note_aside(self._life, answer)
        else:
            turn.answers.append(answer)
        has_trouble = is_trouble(answer)
        self._met_trouble |= has_trouble
        return has_trouble or answer.retry_after_s is not None

    def _check(self, host: _Host, sent: int) -> None:
        """Raise RequestNotSent if nothing more is sent, or nothing more to *host*. *sent*: how many
        of the kind were."""
        if self._is_ended or (host.turn is None and not host.is_own):
            raise RequestNotSent(LeftOut.LEASE)
        if host.is_stopped:
            raise RequestNotSent(LeftOut.TROUBLE)
        if sent >= RENDER_REQUESTS:
            raise RequestNotSent(LeftOut.REQUESTS)
        if max(self._came_bytes, self._given_bytes) >= RENDER_BYTES:
            raise RequestNotSent(LeftOut.BYTES)

    def _fields_of(self, url: str, request: BrowserRequest) -> Iterator[tuple[bytes, bytes]]:
        yield from self._fields
        is_own = authority_of(url) == authority_of(self._life.candidate.url)
        if is_own:
            yield from self._own_fields
        for written, value in request.fields.items():
            name = written.lower()
            if not is_own and name not in _FOR_OTHERS:
                continue
            if name not in _NOT_OF_BROWSER and not name.startswith(_NOT_OF_BROWSER_BEGIN):
                yield name.title().encode("latin-1"), value.encode("latin-1", "replace")

    def room(self, head: AnswerHead, url: str) -> int:
        """Return how many bytes of an answer may come, if no other does."""
        content_type = header_value(headers_of(head_fields(head.clean)), b"Content-Type")
        most = self._parts.options.max_bytes(content_type, url) - head.taken_bytes
        return max(0, min(most, RENDER_BYTES - self._came_bytes))

    def count_bytes(self, size: int) -> bool:
        """Count *size* bytes that have come; return whether the page may have more."""
        self._came_bytes += size
        memory = self._parts.memory
        memory.add(memory.share_of(self._life), size)
        return self._came_bytes <= RENDER_BYTES

    def may_send(self, turn: _Turn | None) -> bool:
        """Return whether a request may be sent now under *turn*; None: under the page's lease."""
        if self._is_ended:
            return False
        if turn is None:
            return self._parts.loop.may_send(self._life)
        return self._parts.now() + self._parts.timeout_s <= turn.borrowed.until

    def note_head(self, turn: _Turn | None, url: str, began: float, head: AnswerHead) -> None:
        """Pass on that an answer says to wait, before anything else is done with it."""
        asked = retry_after_of(head)
        if asked is None and head.status != 429 and head.status < 500:
            return
        loop = self._parts.loop
        if turn is None:
            loop.note_head(self._life, head.status, asked)
        else:
            fetched_s = self._parts.now() - began
            said = head.status, asked, fetched_s, turn.crawl_delay_s
            loop.note_turn_head(turn.borrowed, url, *said)


class PartWatch:
    """Watches one request of a page. Implements port.FetchWatch."""

    __slots__ = ("_began", "_page", "_turn", "_url")

    def __init__(self, page: PageRequests, turn: _Turn | None, url: str, began: float) -> None:
        self._page = page
        self._turn = turn
        self._url = url
        self._began = began

    def may_send(self) -> bool:
        return self._page.may_send(self._turn)

    def note_head(self, head: AnswerHead) -> None:
        self._page.note_head(self._turn, self._url, self._began, head)

    def room(self, head: AnswerHead) -> int:
        return self._page.room(head, self._url)

    async def keep(self, pieces: AsyncIterable[bytes], room: int) -> KeptBody:
        kept = BytesIO()
        async for piece in pieces:
            kept.write(piece)
            if not self._page.count_bytes(len(piece)) or kept.tell() > room:
                kept.truncate(min(room, kept.tell()))
                return KeptBody(kept.getvalue(), Truncated.LENGTH)
        return KeptBody(kept.getvalue())


def browser_answer(url: str, fetched: Fetched, most_bytes: int) -> tuple[BrowserAnswer, str]:
    """Return *fetched*, the answer of *url*, as a browser gets it, and where it leads, if that is
    elsewhere. Raises RequestNotSent if it is not whole, or decodes to more than *most_bytes*."""
    exchange = fetched.exchanges[-1]
    headers = headers_of(head_fields(fetched.head.clean))
    if fetched.head.status in REDIRECTS and (location := header_value(headers, b"Location")):
        leads_to = fetch_form(location_text(location), url)
        if leads_to is None:
            raise RequestNotSent(LeftOut.URL)
        return BrowserAnswer(status=fetched.head.status, fields={}, body=b""), leads_to
    decoded = undo_codings(
        exchange.body, codings_of(headers.getlist(b"Content-Encoding")), most_bytes
    )
    if exchange.truncated is Truncated.LENGTH or Flag.DECODED_LENGTH in decoded.flags:
        raise RequestNotSent(LeftOut.BYTES)
    if exchange.truncated or decoded.flags:
        raise RequestNotSent(LeftOut.ERROR)
    return BrowserAnswer(
        status=fetched.head.status, fields=fields_for_browser(headers), body=decoded.body
    ), ""


def fields_for_browser(headers: Headers) -> dict[str, str]:
    """Return *headers* as a browser gets them: of the body as it is decoded, and without
    cookies."""
    return {
        name.decode("latin-1").lower(): b", ".join(values).decode("latin-1")
        for name, values in dict.items(headers)
        if name not in _NOT_FOR_BROWSER
    }
