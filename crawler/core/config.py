"""Every setting of ours, as one frozen value: its name, type, default, unit and meaning.

Rule: a setting is named CRAWLER_ and its field in capitals. What one may hold is checked
by its kind, what two promise together by their group. A number without a source beside it
is the requirement's own, or a guess to be revisited where it says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from crawler.core.choices import HostUnit, HttpHandler, ProgressStyle, Tls
from crawler.core.contact import contact, is_mail
from crawler.core.content_settings import Archive, Budgets, Content, Links
from crawler.core.kinds import (
    Network,
    choice,
    class_path,
    flag,
    many,
    network,
    number,
    text,
    whole,
)
from crawler.core.knobs import knob, refuse_disorder
from crawler.core.shared_settings import Shared
from crawler.core.url_settings import Limits, Sameness
from crawler.core.version import VERSION

MEGABYTE: Final = 1024 * 1024
DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who we say we are."""

    contact: str = knob("", contact(), "Who answers for the crawl: sent with every request.")
    user_agent_name: str = knob(
        "Gossamer",
        # RFC 9309 2.2.1: a product token has letters, hyphens and underscores only.
        text("letters, hyphens and underscores", "name", r"[A-Za-z_-]{1,40}"),
        "The crawler's name in User-Agent; the one looked for in robots.txt.",
    )

    @property
    def user_agent(self) -> str:
        """The User-Agent header."""
        about = f" (+{self.contact})" if self.contact else ""
        return f"{self.user_agent_name}/{VERSION}{about}"

    @property
    def mailbox(self) -> str | None:
        """The From header. None: the contact is a page, and only a mailbox can stand there."""
        return self.contact if is_mail(self.contact) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Politeness:
    """How long a host is left alone."""

    host_unit: HostUnit = knob(
        HostUnit.HOST, choice(HostUnit), "What one host is: a host name, or a registered domain."
    )
    min_delay_s: float = knob(
        1.0, number("seconds"), "Shortest rest of a host, from a fetch's end to the next's start."
    )
    max_delay_s: float = knob(
        300.0, number("seconds"), "Longest rest that a slow answer can lead to."
    )
    delay_factor: float = knob(
        10.0, number("times"), "A host rests so many times as long as its last fetch took."
    )
    max_crawl_delay_s: float = knob(
        # guess: longer ones leave a host fewer than 24 pages a day
        3600.0,
        number("seconds"),
        "A longer Crawl-delay in robots.txt is taken as this.",
    )
    max_retry_after_s: float = knob(
        DAY_S, number("seconds"), "A longer Retry-After is taken as this."
    )
    retries: int = knob(
        3, whole("attempts"), "Times a failed URL is tried again before it is dead."
    )
    backoff_base_s: float = knob(
        1.0, number("seconds"), "First back-off after a failure; doubles each time, full jitter."
    )
    backoff_max_s: float = knob(60.0, number("seconds"), "Longest back-off.")
    pause_after_failures: int = knob(
        5, whole("failures", least=1), "Failures in a row that pause a host."
    )
    pause_s: float = knob(
        300.0, number("seconds"), "First pause of a failing host, before one probe."
    )
    pause_max_s: float = knob(
        3600.0, number("seconds"), "Longest pause; it doubles with each probe that fails."
    )

    def __post_init__(self) -> None:
        refuse_disorder(
            "CRAWLER_MIN_DELAY_S", self.min_delay_s, "CRAWLER_MAX_DELAY_S", self.max_delay_s
        )
        refuse_disorder(
            *("CRAWLER_BACKOFF_BASE_S", self.backoff_base_s),
            *("CRAWLER_BACKOFF_MAX_S", self.backoff_max_s),
        )
        refuse_disorder("CRAWLER_PAUSE_S", self.pause_s, "CRAWLER_PAUSE_MAX_S", self.pause_max_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Robots:
    """How robots.txt is asked for and kept."""

    robots_max_age_s: float = knob(
        DAY_S,
        # RFC 9309 2.4: no longer than 24 hours.
        number("seconds", least=60, most=DAY_S),
        "How long a robots.txt is believed before it is fetched again.",
    )
    robots_tries: int = knob(
        5, whole("attempts", least=1), "Times an unreachable robots.txt is asked for in a row."
    )
    robots_unreachable_s: float = knob(
        3600.0, number("seconds", least=1), "How long its host is then left alone."
    )
    robots_max_bytes: int = knob(
        512 * 1024,
        # RFC 9309 2.5: the limit is at least 500 kibibytes.
        whole("bytes", least=500 * 1024),
        "Bytes of a robots.txt that are read.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontier:
    """Which URL is next."""

    level_shares: tuple[int, ...] = knob(
        (60, 30, 10),
        many(whole("turns", least=1), least=1),
        "Turns that the levels of priority get of each other, best level first.",
    )
    prioritizer: str = knob(
        "crawler.policy.priority.DepthPrioritizer",
        class_path(),
        "The class that gives a URL its level.",
    )
    max_active_hosts: int = knob(
        20_000, whole("hosts", least=1), "Most hosts held in memory, about 4 kB each."
    )
    head_urls: int = knob(32, whole("URLs", least=1), "URLs of a host read from disk at a time.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """How a page is fetched, and how much of it."""

    http_handler: HttpHandler = knob(
        HttpHandler.AIOHTTP,
        choice(HttpHandler),
        "The HTTP library; not in a spider's custom_settings, the event loop depends on it.",
    )
    tls: Tls = knob(Tls.STRICT, choice(Tls), "Whether a wrong certificate costs its page.")
    allow_inside: tuple[Network, ...] = knob(
        (), many(network()), "Addresses inside your network that may be fetched from."
    )
    connect_timeout_s: float = knob(
        5.0, number("seconds", least=0.1), "Longest wait for a connection."
    )
    total_timeout_s: float = knob(
        30.0,
        number("seconds", least=0.1),
        "Longest fetch, pauses apart; a request's download_timeout can only shorten it.",
    )
    slow_after_s: float = knob(
        # As many new hosts are tried a second as CONCURRENT_REQUESTS holds of this.
        0.3,
        number("seconds", least=0.01),
        "A fetch that brings nothing for so long gives its place to another, and goes on.",
    )
    slow_bytes: int = knob(
        # 1 kB/s: a modem of 1995 is three times as fast.
        300,
        whole("bytes", least=1),
        "What brings less in that time counts as nothing; it is fetched to its end, too.",
    )
    max_waiting: int = knob(
        1024,
        whole("fetches", least=0),
        "Most fetches that so wait for slow hosts, beside CONCURRENT_REQUESTS.",
    )
    html_max_bytes: int = knob(
        2 * MEGABYTE, whole("bytes", least=1024), "Bytes kept of a page, its headers included."
    )
    pdf_max_bytes: int = knob(64 * MEGABYTE, whole("bytes", least=1024), "Bytes kept of a PDF.")
    sitemap_max_bytes: int = knob(
        50 * MEGABYTE,  # sitemaps.org: no sitemap is longer
        whole("bytes", least=1024),
        "Bytes kept of XML, which may be a sitemap.",
    )
    other_max_bytes: int = knob(
        2 * MEGABYTE, whole("bytes", least=1024), "Bytes kept of anything else."
    )
    bodies_max_bytes: int = knob(
        # As many pages as are fetched at once by default, each at its cap, as sent and decoded.
        256 * MEGABYTE,
        whole("bytes", least=MEGABYTE),
        "Memory for bodies, from first byte to finished page; if it is full, downloads pause.",
    )
    replay: str = knob(
        "",
        text("a path", "path", r"[^\0]*"),
        "Answer from the WARC files under this path, not from the network; for tests.",
    )

    def __post_init__(self) -> None:
        refuse_disorder(
            *("CRAWLER_CONNECT_TIMEOUT_S", self.connect_timeout_s),
            *("CRAWLER_TOTAL_TIMEOUT_S", self.total_timeout_s),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a person sees of a crawl."""

    progress: ProgressStyle = knob(
        ProgressStyle.AUTO,
        choice(ProgressStyle),
        "How progress is shown; auto: as fits the output.",
    )
    progress_log_s: float = knob(
        60.0, number("seconds", least=1), "Time between two log lines of progress."
    )
    summary: bool = knob(
        True, flag(), "Print a summary at the end; summary.json is written in any case."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All settings. A component gets the group it needs, not the whole."""

    identity: Identity = field(default_factory=Identity)
    politeness: Politeness = field(default_factory=Politeness)
    robots: Robots = field(default_factory=Robots)
    limits: Limits = field(default_factory=Limits)
    sameness: Sameness = field(default_factory=Sameness)
    links: Links = field(default_factory=Links)
    content: Content = field(default_factory=Content)
    budgets: Budgets = field(default_factory=Budgets)
    frontier: Frontier = field(default_factory=Frontier)
    shared: Shared = field(default_factory=Shared)
    fetch: Fetch = field(default_factory=Fetch)
    archive: Archive = field(default_factory=Archive)
    report: Report = field(default_factory=Report)

    @property
    def may_go_public(self) -> bool:
        """Whether hosts beyond this machine may be crawled: they learn who asks or, in a replay,
        are not asked."""
        return bool(self.identity.contact or self.fetch.replay)


GROUPS: Final = (
    *(Identity, Politeness, Robots, Limits, Sameness),
    *(Links, Content, Budgets, Frontier, Shared, Fetch, Archive, Report),
)
