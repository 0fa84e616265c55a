"""The life of a lease in this process: what is known of it, from its plan to its verdict.

Rule: only this folder changes a `Life`. Its states follow each other as `TRANSITIONS` says; what
travels to it and from it are frozen values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum, auto
from typing import Final

import msgspec
from msgspec.structs import replace

from crawler.model.page import NO_PREFERENCES, Exchange, Flaw, Page, Rendered, Truncated
from crawler.model.types import (
    DISALLOWED,
    Answer,
    Candidate,
    Claim,
    Compared,
    Dead,
    Lease,
    LinkSource,
    Pace,
    Purpose,
    PutBack,
    Verdict,
)
from crawler.policy.refusal import Refusal


class LifeState(IntEnum):
    """The states of a lease, in their order."""

    PLANNED = auto()  # it is known what is fetched under it
    SENT = auto()  # its request is under way
    RESTED = auto()  # its host is released, and rests
    RECORDED = auto()  # its record is written and its links are added
    FINISHED = auto()  # the frontier has its verdict


class LifeEvent(IntEnum):
    """What moves a lease on."""

    SEND = auto()
    REFUSE = auto()  # decided without a request
    REST = auto()  # its transfer is over
    RECORD = auto()
    FINISH = auto()


class FetchStage(StrEnum):
    """What a lease is for at this moment, for people."""

    BEGINNING = "beginning"  # not sent yet: middlewares have it
    FETCHING = "fetching"
    STORING = "storing"  # its answer is whole: it is parsed, archived and synced


TRANSITIONS: Final[Mapping[tuple[LifeState, LifeEvent], LifeState]] = {
    (LifeState.PLANNED, LifeEvent.SEND): LifeState.SENT,
    (LifeState.PLANNED, LifeEvent.REFUSE): LifeState.RESTED,
    (LifeState.PLANNED, LifeEvent.REST): LifeState.RESTED,
    (LifeState.SENT, LifeEvent.SEND): LifeState.SENT,
    (LifeState.SENT, LifeEvent.REFUSE): LifeState.RESTED,
    (LifeState.SENT, LifeEvent.REST): LifeState.RESTED,
    (LifeState.RESTED, LifeEvent.SEND): LifeState.RESTED,  # for its errback: it is not sent
    (LifeState.RESTED, LifeEvent.RECORD): LifeState.RECORDED,
    (LifeState.RECORDED, LifeEvent.FINISH): LifeState.FINISHED,
}


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is fetched under a lease. Arrow: lease -> fetch."""

    lease: Lease
    url: str
    purpose: Purpose = Purpose.PAGE  # if another, the lease is not used for its own URL
    authority: str = ""  # for ROBOTS the authority of the file, for PROBE the kind of URL
    crawl_delay_s: float | None = None  # of its host's robots.txt; None: not known
    max_bytes: int | None = None  # of its body, by a rule; None: as the settings say
    credentials: str | None = None  # the name of those that a rule sends
    validators: str | None = None  # by which it is asked if it has changed; None: it is not


class DeadEnd(msgspec.Struct, frozen=True):
    """Why the answer of a seed leads no further."""

    kind: str  # redirect, refresh, nofollow, noindex or links
    why: str = ""  # with what to do
    target: str = ""  # where it would lead


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What a visit has seen of a page, to be compared with the next one. Arrow: content -> loop."""

    content: int  # 64 bits, as `compared` says
    compared: Compared
    validators: str | None = None  # as of PageHistory
    stored_at: int = 0  # epoch seconds: as of PageHistory
    is_same: bool = False  # the very bytes that its URL had before
    places: int = 0  # links on it
    is_list: bool = False  # a sitemap or a feed: it is there for the links that come
    is_hidden: bool = False  # marked noindex, or disallowed
    is_error: bool = False  # it says that there is no such page


class Archived(msgspec.Struct, frozen=True):
    """What the archive has of an answer."""

    record: str = ""  # "file:offset"
    claim: Claim | None = None
    page: ArchivedPage | None = None  # None: the answer is no page
    seen: Seen | None = None  # None: it is not to be compared


class ArchivedPage(msgspec.Struct, frozen=True):
    """What the change feed says of a page beside its outcome."""

    digest: str
    media_type: str


class PageFacts(msgspec.Struct, frozen=True):
    """What was found out about a page. Arrow: content -> outcome."""

    reason: str = ""  # a flaw, duplicate, near-duplicate, alias or noindex
    original: str = ""  # the URL that had the same content first
    bits: int | None = None  # of 64 that differ from the original; None: equal bytes
    is_new: bool | None = None  # whether it is a page of new content; None: unknown
    preferences: str = ""  # of its publisher, as text; empty: none


def facts_of(page: Page) -> PageFacts:
    """Return what the stages have found out about *page* so far."""
    facts = _content_facts(page)
    if page.preferences is not NO_PREFERENCES:
        facts = replace(facts, preferences=str(page.preferences))
    return replace(facts, reason=f"{DISALLOWED}{page.disallowed}") if page.disallowed else facts


def _content_facts(page: Page) -> PageFacts:
    if page.flaw:
        return PageFacts(page.flaw, is_new=False if page.flaw is Flaw.SOFT_404 else None)
    facts = PageFacts()
    if page.alias_of:
        facts = PageFacts("alias", page.alias_of, is_new=False)
    elif page.is_copy and page.duplicate_of is not None:
        facts = PageFacts("duplicate", page.duplicate_of.url, is_new=False)
    elif page.near is not None:
        near = page.near
        facts = PageFacts("near-duplicate", near.original.url, near.bits, is_new=False)
    elif page.is_answered and page.parsed is not None and not page.is_list:
        facts = PageFacts(is_new=True)
    return replace(facts, reason="noindex") if page.noindex else facts


@dataclass(slots=True, eq=False)
class CarriedExchanges:
    """What was fetched for the page of one or many leases, until it is archived with one."""

    exchanges: tuple[Exchange, ...]


@dataclass(slots=True, eq=False)
class Life:
    """One lease in this process."""

    plan: Plan
    lease: Lease = field(init=False)
    candidate: Candidate = field(init=False)
    state: LifeState = LifeState.PLANNED
    requests: list[object] = field(default_factory=list)  # of Scrapy, that fetch under it
    returned: object = None  # the request that a middleware returned in place of an answer
    address: str = ""  # from which its answer came; empty: it is known by the lease, or not at all
    sent_aside: int = 0  # how often its own request is being sent past the frontier, too
    began_at: float = 0.0  # when its fetch began; 0: not yet
    turn_at: float = 0.0  # when its host was asked first in its turn, for this or another URL
    ended_at: float = 0.0  # when its answer was whole; 0: not yet, or not known
    is_fetched: bool = False  # its request has passed the middlewares, on the way to its handler
    paused_s: float = 0.0  # time of the fetch in which it waited for memory for its body
    head: Answer | None = None  # the answer as its head was, if that has trouble
    answer: Answer | None = None  # of the host; None: no request was sent, or no answer came yet
    asides: tuple[Answer, ...] = ()  # of the host, to what the page needs to be shown
    exchanges: tuple[Exchange, ...] = ()  # what was fetched, until its record is written
    carried: list[CarriedExchanges] = field(default_factory=list)  # of these, with others
    rendered: Rendered | None = None  # None: its answer was not rendered
    lacking: str = ""  # why its page is not whole, though it may be at another time
    given: frozenset[str] = frozenset()  # URLs that a browser was given for its page
    body_bytes: int = 0  # of the exchanges, when they are gone
    truncated: Truncated = Truncated.NO  # why its body is not whole, when it is gone
    page: Page | None = None  # as the last stage left it, until its record is written
    facts: PageFacts = PageFacts()
    archived: Archived = Archived()
    links: list[Candidate] = field(default_factory=list)
    new_links: int = 0  # of its links, those that were not known before
    dead_end: DeadEnd | None = None  # its answer leads no further; set for seeds only
    is_sent_on: bool = False  # all that its answer leads to is its refresh; set for seeds only
    is_wanted: bool = False  # a spider's callback takes it, though its status is an error
    verdict: Verdict | None = None
    reason: str = ""  # of the verdict, where the page's facts have none
    error: str = ""  # of a callback, pipeline or middleware, not of the host
    is_conditional: bool = False  # its host is asked whether the page has changed
    is_unmodified: bool = False  # and says no
    price: str = ""  # that an answer with status 402 asks

    def __post_init__(self) -> None:
        self.lease, self.candidate = self.plan.lease, self.plan.lease.candidate

    @property
    def is_released(self) -> bool:
        return self.state >= LifeState.RESTED

    @property
    def is_refused(self) -> bool:
        """Whether it was decided, and its host released, before a fetch began."""
        return self.is_released and self.verdict is not None and self.answer is None

    @property
    def is_of_page(self) -> bool:
        """Whether its own URL is fetched under it as a page: no robots.txt, probe or check."""
        return self.plan.purpose is Purpose.PAGE

    @property
    def is_of_check(self) -> bool:
        """Whether it is only asked under it if anything is at its own URL."""
        return self.plan.purpose is Purpose.CHECK

    @property
    def is_of_own_url(self) -> bool:
        return self.is_of_page or self.is_of_check

    @property
    def received_bytes(self) -> int:
        """The bytes of the bodies that came."""
        return self.body_bytes or sum([len(each.body) for each in self.exchanges])

    @property
    def is_challenged(self) -> bool:
        """Whether its answer is a challenge or a block, and no page."""
        return self.answer is not None and self.answer.error == "challenge"

    def may_move_to(self, url: str) -> bool:
        """Return whether a request for *url*, which a middleware returned, may decide it: it has
        no verdict yet, or its URL was given up and *url* is another."""
        if isinstance(self.verdict, Dead):
            return url != self.candidate.url
        return self.verdict is None

    def fetched_s(self, now: float) -> float:
        """Return how long its fetch, which ends *now* if not before, took without pauses."""
        return (self.ended_at or now) - self.began_at - self.paused_s

    def open_fetch(self, received_bytes: Callable[[object], int]) -> OpenFetch:
        """Return how far it is. *received_bytes*: as of `Lives.open_fetches`."""
        stage, size = FetchStage.BEGINNING, 0
        if self.ended_at or self.is_released:
            stage, size = FetchStage.STORING, self.received_bytes
        elif self.began_at:
            stage, size = FetchStage.FETCHING, sum(map(received_bytes, list(self.requests)))
        url = "" if self.is_of_own_url else self.plan.url
        return OpenFetch(self.candidate.key, stage, self.began_at, size, url)

    def step(self, event: LifeEvent) -> None:
        """Move on; `Lives.step` counts it. Raises KeyError if *event* may not come now."""
        self.state = TRANSITIONS[self.state, event]

    def begin(self, now: float) -> None:
        """Note that its request is sent now, or given to the downloader."""
        self.step(LifeEvent.SEND)
        self.began_at, self.ended_at = now, 0.0

    def note_fetched(self) -> None:
        """Note that the downloader gives its request to a handler."""
        self.is_fetched = True

    def end(self, now: float) -> None:
        """Note that its answer is whole."""
        self.ended_at = now

    def pause(self, seconds: float) -> None:
        """Leave *seconds*, in which it waited for us, out of the time of its fetch."""
        self.paused_s += seconds

    @property
    def exchange(self) -> Exchange | None:
        """That of its own request, the last one."""
        return self.exchanges[-1] if self.exchanges else None

    def receive(self, *exchanges: Exchange) -> None:
        """Note what was fetched; nothing: that is not known, or not to be archived."""
        self.exchanges = exchanges

    def carry(self, carried: Iterable[CarriedExchanges]) -> None:
        """Note which of what was fetched other leases carry to the archive, too."""
        self.carried += carried

    def end_carrying(self) -> None:
        """Note that what was fetched beside its own request is in the archive."""
        for each in self.carried:
            each.exchanges = ()
        self.carried.clear()

    def note_lacking(self, why: str) -> None:
        """Note why its page is not whole, though it may be at another time; nothing: it is."""
        self.lacking = why

    def note_given(self, urls: frozenset[str]) -> None:
        """Note what a browser was given for its page, by the URLs that this has in it."""
        self.given = urls

    def note_rendered(self, rendered: Rendered | None) -> None:
        """Note that the body of its answer is the DOM that a browser has made of it; None: that it
        is what the server sent, after all."""
        self.rendered = rendered

    def note_address(self, ip: str) -> None:
        """Note from which address of its host its answer came."""
        self.address = ip

    @property
    def link_source(self) -> LinkSource | None:
        """Where its links come from; None: a list names them, which says nothing of domains."""
        if self.candidate.is_sitemap or self.candidate.requisite:
            return None
        return LinkSource(self.candidate.domain, self.address or self.lease.address or "")

    def put_back(self) -> None:
        """Decide nothing about its URL: the failure is ours."""
        self.verdict = PutBack(was_asked=self.is_fetched and self.is_of_own_url)

    def note_error(self, error: str) -> None:
        """Note an error of a callback, a pipeline or a middleware; the first one counts."""
        self.error = self.error or error

    def note_reason(self, reason: str) -> None:
        """Note why no request was sent, or its answer is not kept."""
        self.reason = reason

    def note_wanted(self, *, is_wanted: bool) -> None:
        """Note whether a spider's callback takes its answer, though that is an error."""
        self.is_wanted = is_wanted

    def note_page(self, page: Page) -> None:
        """Note *page* as a stage of its processing has left it."""
        self.page = page

    def archive(
        self, record: str, claim: Claim | None = None, page: ArchivedPage | None = None
    ) -> None:
        """Note that its answer is in the archive."""
        self.archived = Archived(record, claim, page, self.archived.seen)

    def add_links(self, links: list[Candidate]) -> None:
        """Add *links* to those that are added to the frontier with its record."""
        self.links += links

    def note_conditional(self) -> None:
        """Note that its request asks whether the page has changed."""
        self.is_conditional = True

    def note_price(self, price: str) -> None:
        """Note that its answer asks to be paid for; *price* is empty where it does not say what."""
        self.price = price
        self.reason = f"payment ({price})" if price else "payment"

    def note_unmodified(self) -> None:
        """Note that its host says that the page is as it was."""
        self.is_unmodified = True

    def note_seen(self, seen: Seen) -> None:
        """Note what its answer is compared by."""
        self.archived = replace(self.archived, seen=seen)

    def note_new_links(self, links: int) -> None:
        """Note that some of its links were not known before."""
        self.new_links += links

    def note_dead_end(self, dead_end: DeadEnd | None) -> None:
        """Note why its answer, that of a seed, leads no further."""
        self.dead_end = dead_end

    def note_sent_on(self) -> None:
        """Note that its answer, that of a seed, leads to the target of its refresh only."""
        self.is_sent_on = True

    def decide(self, verdict: Verdict, reason: str = "") -> None:
        self.verdict, self.reason = verdict, reason or self.reason

    def note_pace(self, pace: Pace) -> None:
        """Note the pace of its host, which an answer beside it has changed."""
        self.lease = replace(self.lease, pace=pace)

    def note_head(self, head: Answer) -> None:
        """Note what the head of an answer, which has trouble, says; of several the one that asks
        for the longest rest."""
        if self.head is None or (head.retry_after_s or 0.0) >= (self.head.retry_after_s or 0.0):
            self.head = head

    def note_aside(self, answer: Answer) -> None:
        """Note the answer of its host to a further request: for what its page needs."""
        self.asides += (answer,)

    def note_answer(self, answer: Answer) -> None:
        self.answer = answer

    def note_crawl_delay(self, crawl_delay_s: float) -> None:
        """Note the crawl-delay of the robots.txt that was fetched under it."""
        self.plan = replace(self.plan, crawl_delay_s=crawl_delay_s)

    def drop_body(self) -> None:
        """Keep what is needed of its body, page and links, and let them go."""
        self.links = []
        if self.page is not None:
            self.facts = facts_of(self.page)
        if self.exchanges:
            self.body_bytes = sum([len(each.body) for each in self.exchanges])
            self.truncated = self.exchanges[-1].truncated
        self.page, self.exchanges = None, ()
        self.carried.clear()


class OpenFetch(msgspec.Struct, frozen=True, array_like=True):
    """How far the fetch under a lease is, as the process that holds it knows."""

    key: int  # of the URL that is leased
    stage: FetchStage
    begun_at: float  # epoch seconds; 0: not yet
    bytes: int  # of its body, as far as it came
    url: str = ""  # that is fetched in place of the leased one: a robots.txt, or a probe


class Lives:
    """The leases of this process. Bound: one life for each open lease."""

    def __init__(self) -> None:
        self._by_lease: dict[int, Life] = {}
        self._by_request: dict[int, Life] = {}  # by the ids of `Life.requests`
        self._by_returned: dict[int, Life] = {}  # by the id of `Life.returned`
        # Requests without a lease that are treated as the mark says, by their ids.
        self._marks: dict[int, tuple[object, Refusal | Purpose]] = {}
        self.unrecorded = 0  # fetches that have ended and whose record is not written yet
        self.received_bytes = 0  # of bodies, by fetches that have ended and are not completed yet

    def __len__(self) -> int:
        return len(self._by_lease)

    def pages(self) -> int:
        """Return how many of them are for pages. O(n) in the open leases."""
        return sum([life.is_of_page for life in self._by_lease.values()])

    def all(self) -> Iterator[Life]:
        return iter(self._by_lease.values())

    def open_fetches(self, received_bytes: Callable[[object], int]) -> list[OpenFetch]:
        """Return how far each is. *received_bytes* returns what has come of the answer to a request
        that is under way. May be called in any thread."""
        return [life.open_fetch(received_bytes) for life in list(self._by_lease.values())]

    def add(self, plan: Plan) -> Life:
        life = self._by_lease[plan.lease.id] = Life(plan)
        return life

    def hand_out(self, life: Life, request: object) -> None:
        """Note that *request*, and no copy of it, fetches under the lease of *life*."""
        life.requests.append(request)
        self._by_request[id(request)] = life

    def of(self, request: object) -> Life | None:
        """Return the life whose lease *request* was handed out for, or None: it is a copy, was
        sent past the frontier, or is finished."""
        return self._by_request.get(id(request))

    def of_lease(self, lease_id: int) -> Life | None:
        return self._by_lease.get(lease_id)

    def note_returned(self, life: Life, request: object) -> None:
        """Note that a middleware returned *request* in place of the answer of *life*."""
        life.returned = request
        self._by_returned[id(request)] = life

    def take_returned(self, request: object) -> Life | None:
        """Return, once, the life in which *request* was returned; None: in none."""
        return self._by_returned.pop(id(request), None)

    def mark(self, request: object, mark: Refusal | Purpose) -> None:
        """Mark *request*, which has no lease: refused, or for a robots.txt. Copies are not."""
        self._marks[id(request)] = request, mark

    def mark_of(self, request: object) -> Refusal | Purpose | None:
        return self._marks[id(request)][1] if id(request) in self._marks else None

    def unmark(self, request: object) -> None:
        self._marks.pop(id(request), None)

    def send_aside(self, life: Life) -> None:
        """Note that the request of *life* is sent past the frontier too, until `came_aside`."""
        life.sent_aside += 1

    def came_aside(self, life: Life) -> bool:
        """Return whether it is a request sent past the frontier that has ended, and count it."""
        is_aside = life.sent_aside > 0
        life.sent_aside -= is_aside
        return is_aside

    def step(self, life: Life, event: LifeEvent) -> None:
        """Move *life* on. When it rests, its record is awaited; when it is recorded, what that was
        needed for is dropped."""
        life.step(event)
        if event is LifeEvent.RECORD:
            life.drop_body()
            self._forget_requests(life)
            self.unrecorded -= 1
        elif event is not LifeEvent.FINISH:
            self.unrecorded += 1
            self.received_bytes += life.received_bytes

    def _forget_requests(self, life: Life) -> None:
        """Forget the requests of *life*, none of which is used again."""
        for request in life.requests:
            self._by_request.pop(id(request), None)
        if life.returned is not None:
            self._by_returned.pop(id(life.returned), None)
        life.requests, life.returned = [], None

    def remove(self, life: Life) -> None:
        if life.is_released:
            self.received_bytes -= life.received_bytes
        self._forget_requests(life)
        self._by_lease.pop(life.lease.id, None)
