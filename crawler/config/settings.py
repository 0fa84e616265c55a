"""All settings, as frozen values with their defaults and meanings.

Rule: a setting is named CRAWLER_ and its field in capitals. Its kind checks its value, its group
checks values that depend on each other.

A number without a source beside it is from the requirements, or is marked as a guess.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final

from crawler.config.readers import (
    DENIED_EXTENSIONS,
    Network,
    Setting,
    choice,
    class_path,
    contact,
    duration,
    flag,
    frontier_url,
    integer,
    is_mail,
    is_of_url_frontier,
    list_of,
    network,
    number,
    or_none,
    or_word,
    origin_of_https,
    read_group,
    refuse_disorder,
    refuse_unknown,
    revisit_mode,
    server_address,
    setting,
    settings_of,
    suffix,
    text,
)
from crawler.model.choices import (
    AutoByScope,
    AutoByServer,
    ChangeChoice,
    ColumnGroup,
    HostUnit,
    NearDuplicateChoice,
    PreferenceFiles,
    ProgressStyle,
    RedisFsync,
    RenderChoice,
    RevisitChoice,
    RevisitMode,
    ScopeChoice,
    Tls,
    Use,
)
from crawler.model.page import EMBEDDED, FRAMES, LinkKind
from crawler.model.types import VERSION, ConfigError

MEGABYTE: Final = 1024 * 1024
GIGABYTE: Final = 1024 * MEGABYTE
FOLLOWED: Final = tuple(
    kind for kind in LinkKind if kind not in {*EMBEDDED, LinkKind.TEXT} or kind in FRAMES
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """Which links of a page are followed."""

    follow_kinds: tuple[LinkKind, ...] = setting(
        FOLLOWED, list_of(choice(LinkKind)), "Links that are followed, by where they stand."
    )
    follow_sitemaps: bool = setting(
        True, flag(), "Fetch the sitemaps that robots.txt names, after everything else."
    )
    follow_duplicates: bool = setting(
        False, flag(), "Also follow the links of a page whose content is stored already."
    )
    respect_nofollow: bool = setting(
        True,
        flag(),
        "Do not follow links marked nofollow, on the link, the page or in X-Robots-Tag.",
    )
    respect_noindex: bool = setting(
        True,
        flag(),
        "Store only the links of pages marked noindex, and no text; the links are followed.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentSettings:
    """What counts as a page, and what as a copy."""

    parsers: tuple[str, ...] = setting(
        (), list_of(class_path()), "Parsers of your own; they go before those that are installed."
    )
    parse_timeout_s: float = setting(
        20.0,
        number("seconds", least=0.1),
        "Longest processor time for a page in a child process (PDF, feeds, long pages).",
    )
    parse_max_bytes: int = setting(
        # guess: pdfium reads most PDFs of 64 MB in less
        512 * MEGABYTE,
        integer("bytes", least=64 * MEGABYTE),
        "Most memory of each child process that parses.",
    )
    soft_404: bool = setting(
        True, flag(), "Request a name that cannot exist from a host whose pages look like errors."
    )
    near_duplicates: NearDuplicateChoice = setting(
        NearDuplicateChoice.FOLLOW,
        choice(NearDuplicateChoice),
        "Pages with nearly the same text: marked, stored, followed; or less, or not looked for.",
    )
    near_max_bits: int = setting(
        3, integer("bits", most=3), "So many of the 64 bits of two fingerprints may differ."
    )
    near_min_words: int = setting(
        # usual in this field: fewer than 50 words say little; such pages are compared by hash only
        50,
        integer("words", least=3),
        "A page with fewer words has no fingerprint.",
    )
    column_groups: tuple[ColumnGroup, ...] = setting(
        tuple(group for group in ColumnGroup if group is not ColumnGroup.MARKDOWN),
        list_of(choice(ColumnGroup)),
        "Groups of columns beside those that are always there; what is not named costs nothing.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternSettings:
    """When no more URLs of one pattern (digits, dates, queries folded) are fetched."""

    pattern_max_pages: int | None = setting(
        10_000, or_none(integer("pages", least=1)), "Most pages fetched of one pattern of a host."
    )
    pattern_barren_pages: int | None = setting(
        # guess, revisit: a calendar costs a host this many pages; a list with few new ones goes on
        100,
        or_none(integer("pages", least=1)),
        "So many pages in a row with nothing new stop a pattern.",
    )
    pattern_probe_s: float = setting(
        3600.0,
        number("seconds", least=1),
        "Time after which one page of a stopped pattern is tried again.",
    )
    calendar_from_year: int = setting(
        1990, integer("year"), "A date in a URL before this year counts as one of a calendar."
    )
    calendar_ahead_days: int = setting(
        400, integer("days"), "A date in a URL further ahead counts as one of a calendar."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSettings:
    """What is kept on disk, and how safely."""

    data_dir: str = setting(
        "crawl-data",
        text("a path", "path", r"[^\0]+"),
        "All of a crawl is under this path (`%(name)s`: the spider's name); if not set, JOBDIR.",
    )
    warc: bool = setting(True, flag(), "Archive what is fetched, as WARC files.")
    warc_max_bytes: int = setting(
        GIGABYTE,
        integer("bytes", least=MEGABYTE),
        "A WARC file this long is closed and the next begun.",
    )
    columns: bool = setting(
        True, flag(), "Write text and columns of the pages beside each WARC file, as Parquet."
    )
    outcome_table: bool = setting(
        True, flag(), "Write what became of each URL as Parquet, too, where CRAWLER_COLUMNS is on."
    )
    archive_url: str = setting(
        "",
        text("a URL such as s3://bucket/folder, or nothing", "URL", r"|[a-z][a-z0-9+.-]*://\S+"),
        "Where finished files are delivered, by fsspec (s3, gs, az...); empty: they stay here.",
    )
    archive_waiting_bytes: int = setting(
        10 * GIGABYTE,
        integer("bytes", least=MEGABYTE),
        "Finished files that may wait for that store; with more, fetching waits.",
    )
    archive_keep: timedelta | None = setting(
        None,
        or_none(duration()),
        "How long WARC files are kept; those whose answers are all older go, columns stay.",
    )
    fsync: bool = setting(
        True,
        flag(),
        "What is done survives a power cut too, not only the death of the process.",
    )
    fsync_every_s: float = setting(
        1.0,
        number("seconds", least=0.01),
        "With CRAWLER_FSYNC, time between two syncs; a page is done after the next one.",
    )
    changes: bool = setting(
        False, flag(), "Write the change feed, for whoever keeps an index of the pages."
    )
    changes_max_lag: int | None = setting(
        None,
        or_none(integer("entries", least=1)),
        "With a consumer of that feed further behind, fetching waits.",
    )

    @property
    def has_outcome_table(self) -> bool:
        return self.columns and self.outcome_table

    def __post_init__(self) -> None:
        if self.changes and not (self.warc and self.fsync):
            off = "CRAWLER_FSYNC" if self.warc else "CRAWLER_WARC"
            raise ConfigError(
                f"CRAWLER_CHANGES needs {off}, which is off: an entry of the change feed says where"
                " the record of its page is, when that is on the disk"
            )


# A server fuller than this would soon refuse writes. The rest is for what must go on: verdicts,
# leases, replication, client buffers.
FULL_FRACTION: Final = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedSettings:
    """How workers share a crawl."""

    frontier_url: str = setting(
        "",
        frontier_url(),
        "The Redis (or file:/path of its URL), or URL Frontier; empty: the data directory has it.",
    )
    frontier_name: str = setting(
        "gossamer",
        text(
            "1 to 40 letters, digits, dots, hyphens, underscores", "name", r"[A-Za-z0-9._-]{1,40}"
        ),
        "What the crawl's keys begin with in its Redis; its crawlID in a URL Frontier.",
    )
    frontier_shards: int = setting(
        64,
        # 1024: the check for the end of the crawl reads each of them
        integer("shards", least=1, most=1024),
        "Parts of the crawl, each owned by one worker, so at least as many; fixed when it begins.",
    )
    worker_name: str = setting(
        "",
        text(
            "64 letters, digits, dots, hyphens, underscores at most",
            "name",
            r"[A-Za-z0-9._-]{0,64}",
        ),
        "This worker's name; empty: the machine's and a random part, kept in the data directory.",
    )
    lease_s: float = setting(
        60.0,
        number("seconds", least=1),
        "How long the shards of a worker that died, or is cut off, wait for another owner.",
    )
    redis_wait_s: float = setting(
        300.0,  # a file of 10 GB is loaded in 1 to 2 minutes
        number("seconds"),
        "How long a worker waits at its start for servers that are down, or load their data.",
    )
    redis_fsync: RedisFsync = setting(
        RedisFsync.EVERYSEC,
        choice(RedisFsync),
        "The servers' appendfsync; everysec: with several, a page is finished 4 s after its links.",
    )
    redis_max_bytes: int | AutoByServer = setting(
        AutoByServer.AUTO,
        or_word(integer("bytes", least=1024 * 1024), AutoByServer),
        "Above this a server's new links wait on our disk; auto: 0.8 of its maxmemory, if any.",
    )
    share_names: bool = setting(
        False,
        flag(),
        "Whether workers of a shared crawl use each other's answers of name servers.",
    )

    @property
    def url_frontier(self) -> str:
        """The URL of the URL Frontier that has the frontier of the crawl; empty: none has."""
        return self.frontier_url if is_of_url_frontier(self.frontier_url) else ""

    def full_bytes(self, maxmemory_bytes: int) -> int | None:
        """Return when a server of *maxmemory_bytes* (0: no limit) counts as full; None: never."""
        if self.redis_max_bytes is not AutoByServer.AUTO:
            return self.redis_max_bytes
        return int(maxmemory_bytes * FULL_FRACTION) if maxmemory_bytes else None


_BROAD_BUDGET: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings:
    """Which URLs are not fetched."""

    max_redirects: int = setting(10, integer("redirects"), "Redirects followed in a row.")
    max_url_length: int = setting(
        2048,
        # 4096: longer texts are not parsed at all
        integer("characters", least=64, most=4096),
        "Longest URL that is fetched.",
    )
    max_path_segments: int = setting(
        10, integer("segments", least=1), "Most path segments of a URL that is fetched."
    )
    domain_budget: int | None | AutoByScope = setting(
        AutoByScope.AUTO,
        or_word(or_none(integer("URLs", least=1)), AutoByScope),
        "URLs of a domain a round, while others wait; auto: 10 if the scope is any, else none.",
    )
    top_domain_budget: int = setting(
        10_000,
        integer("URLs", least=1),
        "The same of the domain that most others link to; it falls with the rank.",
    )
    top_domains: int = setting(
        10_000, integer("domains", least=1), "Domains, by rank, that get more than the least."
    )
    budget_round_s: float = setting(
        3600.0, number("seconds", least=1), "After which a domain gets its budget again."
    )
    max_urls_per_domain: int | None = setting(
        None, or_none(integer("URLs", least=1)), "Most URLs found of a registered domain, in all."
    )
    max_urls_per_host: int | None = setting(
        None, or_none(integer("URLs", least=1)), "Most URLs found of a host, in all."
    )
    deny_extensions: tuple[str, ...] = setting(
        DENIED_EXTENSIONS, list_of(suffix()), "URLs whose path ends so are not fetched."
    )

    def budget_of(self, scope: ScopeChoice) -> int | None:
        """Return how many URLs a round a domain gets at least in a crawl of *scope*; None: any
        number."""
        if self.domain_budget is not AutoByScope.AUTO:
            return self.domain_budget
        return _BROAD_BUDGET if scope is ScopeChoice.ANY else None


@dataclass(frozen=True, slots=True, kw_only=True)
class UrlSettings:
    """Which different URLs count as one."""

    strip_tracking: bool = setting(
        True, flag(), "Tracking parameters (utm_source...) do not count."
    )
    strip_session_ids: bool = setting(False, flag(), "Session ids (PHPSESSID...) do not count.")
    sort_query: bool = setting(True, flag(), "The order of query parameters does not count.")
    merge_trailing_slash: bool = setting(False, flag(), "/a and /a/ are one.")
    merge_www: bool = setting(False, flag(), "www.a.org and a.org are one.")
    merge_https: bool = setting(False, flag(), "http and https are one.")
    canonical_identity: bool = setting(
        False, flag(), "A page that names another URL as its canonical one is that URL."
    )


DAY_S: Final = 86_400.0


_PKCS8_BEGIN: Final = "MC4CAQAwBQYDK2VwBCIEI"  # of all Ed25519 keys (RFC 8410, 7), in base64


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentitySettings:
    """How the crawler identifies itself."""

    contact: str = setting("", contact(), "How to reach you: sent with every request.")
    user_agent_name: str = setting(
        "Gossamer",
        # RFC 9309 2.2.1: a product token has letters, hyphens and underscores only.
        text("letters, hyphens and underscores", "name", r"[A-Za-z_-]{1,40}"),
        "The crawler's name in User-Agent; the one looked for in robots.txt.",
    )
    signing_key: str = setting(
        "",
        text("a path, or nothing", "path", r"[^\0]*"),
        "File of the Ed25519 key that signs requests over https (Web Bot Auth), of mode 0600.",
    )
    signature_agent: str = setting(
        "",
        origin_of_https(),
        "The site that publishes that key, as in https://bot.your-organisation.org.",
    )

    def __post_init__(self) -> None:
        if "-----BEGIN" in self.signing_key or _PKCS8_BEGIN in self.signing_key:
            raise ConfigError("CRAWLER_SIGNING_KEY is a key, not shown here: give its file's path")
        if bool(self.signing_key) != bool(self.signature_agent):
            given, missing = "CRAWLER_SIGNING_KEY", "CRAWLER_SIGNATURE_AGENT"
            if self.signature_agent:
                given, missing = missing, given
            raise ConfigError(
                f"{given} is set without {missing}: requests are signed by a key, for the site that"
                " publishes it"
            )

    @property
    def user_agent(self) -> str:
        """The User-Agent header."""
        about = f" (+{self.contact})" if self.contact else ""
        return f"{self.user_agent_name}/{VERSION}{about}"

    @property
    def mailbox(self) -> str | None:
        """The From header, or None if the contact is a page: only a mailbox can stand there."""
        return self.contact if is_mail(self.contact) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolitenessSettings:
    """How long a host rests."""

    host_unit: HostUnit = setting(
        HostUnit.HOST,
        choice(HostUnit),
        "What one host is: a name, a registered domain, or all names of one address.",
    )
    address_wait_s: float = setting(
        # twice the longest rest that a slow answer leads to. With the shortest rests, so an address
        # gets more than one request at once only if it has some 500 names.
        600.0,
        number("seconds", least=1),
        "Longest that a host waits for others of its address, where CRAWLER_HOST_UNIT is that.",
    )
    min_delay_s: float = setting(
        1.0,
        number("seconds"),
        "Shortest rest of a host after a fetch, at first; one that you set holds always.",
    )
    max_delay_s: float = setting(
        300.0, number("seconds"), "Longest rest that a slow answer can lead to."
    )
    delay_factor: float = setting(
        10.0,
        number("times"),
        "Rest in times of the last fetch, at first; a factor that you set holds always.",
    )
    paced_share: float = setting(
        # at most as long as the host rests: it is asked by one connection, half of the time
        0.5,
        number("share", least=0.01, most=0.99),
        "Most of a host's time in which a fetch is under way, if its server stays fast.",
    )
    paced_min_delay_s: float = setting(
        0.1, number("seconds"), "Shortest rest of a host whose server stays fast."
    )
    paced_connections: int = setting(
        1,
        integer("fetches", least=1),
        "Most fetches at once of a host whose server stays fast; rules can allow it for some.",
    )
    max_crawl_delay_s: float = setting(
        # guess: longer ones leave a host fewer than 24 pages a day
        3600.0,
        number("seconds"),
        "A longer Crawl-delay in robots.txt is taken as this.",
    )
    max_retry_after_s: float = setting(
        DAY_S, number("seconds"), "A longer Retry-After is taken as this."
    )
    retries: int = setting(
        3, integer("attempts"), "Times a failed URL is tried again before it is dead."
    )
    callback_retries: int = setting(
        0,
        integer("attempts"),
        "Times a URL is fetched again after an error in your code; failed fetches count, too.",
    )
    backoff_base_s: float = setting(
        1.0, number("seconds"), "First back-off after a failure; doubles each time, full jitter."
    )
    backoff_max_s: float = setting(60.0, number("seconds"), "Longest back-off.")
    pause_after_failures: int = setting(
        5, integer("failures", least=1), "Failures in a row that pause a host."
    )
    pause_s: float = setting(
        300.0, number("seconds"), "First pause of a failing host, before one probe."
    )
    pause_max_s: float = setting(
        3600.0, number("seconds"), "Longest pause; it doubles with each probe that fails."
    )
    challenge_pause_s: float = setting(
        3600.0, number("seconds"), "First pause of a host that sent three challenges in a row."
    )
    challenge_pause_max_s: float = setting(
        DAY_S,
        number("seconds", most=DAY_S),  # no rest is longer
        "Longest of these pauses; they double, and after the fifth the host is left.",
    )
    challenges: str = setting(
        "",
        text("a path", "path", r"[^\0]*"),
        "A file of signatures by which challenges and blocks are known, beside the built-in ones.",
    )

    def __post_init__(self) -> None:
        refuse_disorder(
            "CRAWLER_MIN_DELAY_S", self.min_delay_s, "CRAWLER_MAX_DELAY_S", self.max_delay_s
        )
        refuse_disorder(
            "CRAWLER_BACKOFF_BASE_S",
            self.backoff_base_s,
            "CRAWLER_BACKOFF_MAX_S",
            self.backoff_max_s,
        )
        refuse_disorder("CRAWLER_PAUSE_S", self.pause_s, "CRAWLER_PAUSE_MAX_S", self.pause_max_s)
        refuse_disorder(
            "CRAWLER_CHALLENGE_PAUSE_S",
            self.challenge_pause_s,
            "CRAWLER_CHALLENGE_PAUSE_MAX_S",
            self.challenge_pause_max_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RobotsSettings:
    """How robots.txt is fetched and kept."""

    robots_max_age_s: float = setting(
        DAY_S,
        # RFC 9309 2.4: no longer than 24 hours.
        number("seconds", least=60, most=DAY_S),
        "How long a robots.txt is valid before it is fetched again.",
    )
    robots_tries: int = setting(
        # As many failures in a row as give up a host: see GIVE_UP_NEW_AFTER_PAUSES.
        21,
        integer("attempts", least=1),
        "Times in a row that an unreachable robots.txt is fetched.",
    )
    robots_unreachable_s: float = setting(
        3600.0, number("seconds", least=1), "How long no page of its host is then fetched."
    )
    robots_max_bytes: int = setting(
        512 * 1024,
        # RFC 9309 2.5: the limit is at least 500 kibibytes.
        integer("bytes", least=500 * 1024),
        "Bytes of a robots.txt that are read.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierSettings:
    """Which URL is fetched next."""

    level_shares: tuple[int, ...] = setting(
        (60, 30, 10),
        list_of(integer("turns", least=1), least=1),
        "Turns that the levels of priority get of each other, best level first.",
    )
    prioritizer: str = setting(
        "crawler.policy.priority.CashPrioritizer",
        class_path(),
        "The class that gives a URL its level.",
    )
    max_active_hosts: int = setting(
        20_000, integer("hosts", least=1), "Most hosts held in memory, about 4 kB each."
    )
    head_urls: int = setting(
        32, integer("URLs", least=1), "URLs of a host read from disk at a time."
    )
    ranks: str = setting(
        "",
        text("a path", "path", r"[^\0]*"),
        "A list of domains or hosts by rank, such as Common Crawl's, for order and budgets.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisitSettings:
    """Which pages are visited again, and when."""

    revisit: RevisitMode = setting(
        RevisitChoice.ONCE,
        revisit_mode(),
        "Visit pages once, each so often, or as often as they seem to change.",
    )
    revisits_per_day: float | None = setting(
        None,
        or_none(number("visits", least=1)),
        "Adaptive visits a day, of all pages; none: as many as the pages in 30 days.",
    )
    revisit_share: float = setting(
        0.1,
        number("turns", least=0.1, most=0.9),
        "Share of the turns of hosts for pages visited again, while new ones wait.",
    )
    revisit_change: ChangeChoice = setting(
        ChangeChoice.TEXT,
        choice(ChangeChoice),
        "What of a page counts as changed: its bytes, its text, or more than a little of it.",
    )
    revisit_usual_days: float = setting(
        # Too long costs a visit, too short leaves pages: docs/decisions/0058.
        30.0,
        number("days", least=0.01),
        "A page of which nothing is known is taken to change once in so many days.",
    )
    gone_after: int = setting(
        3,
        integer("visits", least=1),
        "A page is gone after so many visits in a row that do not find it; 410: after one.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """How a page is fetched, and how much of it."""

    tls: Tls = setting(
        Tls.STRICT, choice(Tls), "Whether a page with an invalid certificate is refused."
    )
    allow_inside: tuple[Network, ...] = setting(
        (), list_of(network()), "Addresses inside your network that may be fetched from."
    )
    name_servers: tuple[str, ...] = setting(
        (),
        list_of(server_address()),
        "Name servers that are asked, as 127.0.0.1:5353 or [::1]; empty: the system's.",
    )
    connect_timeout_s: float = setting(
        5.0, number("seconds", least=0.1), "Longest wait for a connection."
    )
    total_timeout_s: float = setting(
        30.0,
        number("seconds", least=0.1),
        "Longest fetch, pauses apart; a request's download_timeout can only shorten it.",
    )
    slow_after_s: float = setting(
        # CONCURRENT_REQUESTS divided by this is how many new hosts are tried a second.
        0.3,
        number("seconds", least=0.01),
        "A fetch without data for so long frees its slot, and continues.",
    )
    slow_bytes: int = setting(
        # 1 kB/s: a modem of 1995 is three times as fast.
        300,
        integer("bytes", least=1),
        "Fewer bytes than this in that time count as no data.",
    )
    max_waiting: int = setting(
        1024,
        integer("fetches", least=0),
        "Most fetches without a slot that wait for slow hosts, beside CONCURRENT_REQUESTS.",
    )
    html_max_bytes: int = setting(
        2 * MEGABYTE, integer("bytes", least=1024), "Bytes kept of a page, its headers included."
    )
    pdf_max_bytes: int = setting(
        64 * MEGABYTE, integer("bytes", least=1024), "Bytes kept of a PDF."
    )
    sitemap_max_bytes: int = setting(
        50 * MEGABYTE,  # sitemaps.org: no sitemap is longer
        integer("bytes", least=1024),
        "Bytes kept of XML and of what is named as a sitemap.",
    )
    other_max_bytes: int = setting(
        2 * MEGABYTE, integer("bytes", least=1024), "Bytes kept of anything else."
    )
    bodies_max_bytes: int = setting(
        # The pages that are fetched at once by default, each at its cap, as sent and decoded.
        256 * MEGABYTE,
        integer("bytes", least=MEGABYTE),
        "Memory for bodies, from first byte to finished page; if it is full, downloads pause.",
    )
    replay: str = setting(
        "",
        text("a path", "path", r"[^\0]*"),
        "Answer from the WARC files under this path, not from the network; for tests.",
    )

    def __post_init__(self) -> None:
        refuse_disorder(
            "CRAWLER_CONNECT_TIMEOUT_S",
            self.connect_timeout_s,
            "CRAWLER_TOTAL_TIMEOUT_S",
            self.total_timeout_s,
        )


RENDER_REQUESTS: Final = 64
"""Most requests for what a page needs while it is rendered, redirects among them; and as many for
robots.txt files."""
RENDER_BYTES: Final = 10 * MEGABYTE
"""Most of what they bring, as sent and as decoded."""
RENDER_REQUEST_S: Final = 10.0
"""The longest of them; most take less than one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderSettings:
    """Which pages a browser makes of their answers, running their scripts, and what that may
    take."""

    render: RenderChoice = setting(
        RenderChoice.NEVER,
        choice(RenderChoice),
        "Pages of which a browser runs the scripts; auto: where that brings text or links.",
    )
    browser: str = setting(
        "",
        text("a path", "path", r"[^\0]*"),
        "The Chromium that is used; empty: its headless shell or else the whole, on the PATH.",
    )
    render_share: float = setting(
        1.0,
        number("pages", least=0.0, most=1.0),
        "Most pages that are rendered, as a share of those with scripts; beyond the first 20.",
    )
    render_tabs: int = setting(
        # Measured on two cores: four bring a quarter more pages a second and twice the wait.
        2,
        integer("pages", least=1, most=64),
        "Pages that the browser works at at once.",
    )
    render_timeout_s: float = setting(
        # guess: Heritrix and Browsertrix allow 30 s and 90 s to pages that people read
        15.0,
        number("seconds", least=1, most=300),
        "Longest work at a page; then it is taken as it is, or as it was fetched.",
    )
    render_quiet_s: float = setting(
        0.5,  # as Heritrix and Playwright's own "networkidle"
        number("seconds", least=0.05, most=30),
        "A page is ready when it has asked for nothing for so long.",
    )
    render_scrolls: int = setting(
        0,
        integer("scrolls", most=100),
        "How often a page is scrolled to its end, for what it loads only then.",
    )
    render_max_bytes: int = setting(
        1024 * MEGABYTE,
        integer("bytes", least=256 * MEGABYTE),
        "Memory of the browser; with more it is replaced.",
    )


PREFERENCE_FILES_S: Final = 20.0
"""The longest time in which files are fetched for the preferences of one page, within the longest
of its turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceSettings:
    """What publishers say of the use of their pages, and what follows from it."""

    preference_files: PreferenceFiles = setting(
        PreferenceFiles.NAMED,
        choice(PreferenceFiles),
        "Files fetched for preferences: licences that are named; all: tdmrep.json of hosts, too.",
    )
    require_preference: tuple[Use, ...] = setting(
        (),
        list_of(choice(Use)),
        "Uses for which you store pages: what disallows one of them is not stored.",
    )

    @property
    def files(self) -> PreferenceFiles:
        """Which files are fetched: all, where a page may not be stored by what they say."""
        return PreferenceFiles.ALL if self.require_preference else self.preference_files


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSettings:
    """How a crawl reports its progress and result."""

    progress: ProgressStyle = setting(
        ProgressStyle.AUTO,
        choice(ProgressStyle),
        "How progress is shown; auto: as fits the output.",
    )
    progress_log_s: float = setting(
        60.0, number("seconds", least=1), "Time between two log lines of progress."
    )
    summary: bool = setting(
        True, flag(), "Print a summary at the end; summary.json is written in any case."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSettings:
    """Acting on a crawl that runs."""

    rules: str = setting(
        "",
        text("a path", "path", r"[^\0]*"),
        "The file of the operator's rules; empty: rules.toml in the data directory.",
    )
    http: str = setting(
        "",
        text("HOST:PORT, or nothing", "address", r"|[^\s/]+:[0-9]{1,5}"),
        "Where the HTTP API listens, such as 127.0.0.1:6802; empty: nowhere.",
    )
    http_tokens: str = setting(
        "",
        text("a path", "path", r"[^\0]*"),
        "A file of mode 0600 with NAME:TOKEN lines; needed where others can reach the API.",
    )
    credentials: str = setting(
        "",
        text("a path", "path", r"[^\0]*"),
        "A file of mode 0600 with the credentials that rules name, as NAME=user:password lines.",
    )
    alert_command: str = setting(
        "",
        text("a command", "command", r"[^\0]*"),
        "A command, without a shell, that gets each alert as JSON on its standard input.",
    )
    alert_url: str = setting(
        "",
        text("an http or https URL, or nothing", "URL", r"|https?://[^\s/]+\S*"),
        "An address that each alert is posted to, as JSON.",
    )

    def __post_init__(self) -> None:
        try:
            shlex.split(self.alert_command)
        except ValueError as wrong:
            raise ConfigError(
                f"CRAWLER_ALERT_COMMAND is {self.alert_command!r}, which is no command: {wrong}"
            ) from wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All settings. A component gets the group it needs, not all of them."""

    identity: IdentitySettings = field(default_factory=IdentitySettings)
    politeness: PolitenessSettings = field(default_factory=PolitenessSettings)
    robots: RobotsSettings = field(default_factory=RobotsSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    urls: UrlSettings = field(default_factory=UrlSettings)
    links: LinkSettings = field(default_factory=LinkSettings)
    content: ContentSettings = field(default_factory=ContentSettings)
    patterns: PatternSettings = field(default_factory=PatternSettings)
    frontier: FrontierSettings = field(default_factory=FrontierSettings)
    revisits: RevisitSettings = field(default_factory=RevisitSettings)
    shared: SharedSettings = field(default_factory=SharedSettings)
    fetch: FetchSettings = field(default_factory=FetchSettings)
    render: RenderSettings = field(default_factory=RenderSettings)
    preferences: PreferenceSettings = field(default_factory=PreferenceSettings)
    archive: ArchiveSettings = field(default_factory=ArchiveSettings)
    report: ReportSettings = field(default_factory=ReportSettings)
    operator: OperatorSettings = field(default_factory=OperatorSettings)

    @property
    def may_go_public(self) -> bool:
        """Whether public hosts may be crawled: there is a contact, or a replay sends no request."""
        return bool(self.identity.contact or self.fetch.replay)

    @property
    def longest_turn_s(self) -> float:
        """How long the requests to a host under one lease, or one borrowed turn, take at most: what
        a dead process may have left under way."""
        rendered_s = self.render.render_timeout_s + RENDER_REQUEST_S if self._renders else 0.0
        return self.fetch.total_timeout_s + rendered_s

    @property
    def most_requests(self) -> int:
        """How many these are at most."""
        return 1 + RENDER_REQUESTS if self._renders else 1

    @property
    def _renders(self) -> bool:
        return self.render.render is not RenderChoice.NEVER


GROUPS: Final = (
    *(IdentitySettings, PolitenessSettings, RobotsSettings, LimitSettings, UrlSettings),
    *(
        LinkSettings,
        ContentSettings,
        PatternSettings,
        FrontierSettings,
        RevisitSettings,
        SharedSettings,
        FetchSettings,
        RenderSettings,
        PreferenceSettings,
        ArchiveSettings,
        ReportSettings,
        OperatorSettings,
    ),
)


# Reading the settings: only names that begin with CRAWLER_, or nearly so, are checked.

PREFIX: Final = "CRAWLER_"
_NEVER: Final = 1 << 31


def settings_table() -> dict[type, list[Setting]]:
    """Return all settings by group, in the order of the documentation."""
    return {group: settings_of(group, PREFIX) for group in GROUPS}


def read_config(settings: Mapping[str, object]) -> Config:
    """Read all settings strictly. Raises ConfigError, whose text names the setting."""
    names = {row.name for rows in settings_table().values() for row in rows}
    refuse_unknown("setting", _likely_ours(settings, names), names)
    return Config(
        identity=read_group(IdentitySettings, settings, PREFIX),
        politeness=_as_set(read_group(PolitenessSettings, settings, PREFIX), settings),
        robots=read_group(RobotsSettings, settings, PREFIX),
        limits=read_group(LimitSettings, settings, PREFIX),
        urls=read_group(UrlSettings, settings, PREFIX),
        links=read_group(LinkSettings, settings, PREFIX),
        content=read_group(ContentSettings, settings, PREFIX),
        patterns=read_group(PatternSettings, settings, PREFIX),
        frontier=read_group(FrontierSettings, settings, PREFIX),
        revisits=read_group(RevisitSettings, settings, PREFIX),
        shared=read_group(SharedSettings, settings, PREFIX),
        fetch=read_group(FetchSettings, settings, PREFIX),
        render=read_group(RenderSettings, settings, PREFIX),
        preferences=read_group(PreferenceSettings, settings, PREFIX),
        archive=read_group(ArchiveSettings, settings, PREFIX),
        report=read_group(ReportSettings, settings, PREFIX),
        operator=read_group(OperatorSettings, settings, PREFIX),
    )


def _as_set(politeness: PolitenessSettings, given: Mapping[str, object]) -> PolitenessSettings:
    """Return *politeness* in which no host is asked more often than *given* settings of the user
    say: the shortest rest and the factor hold at each stage."""
    set_by_user = {
        row.field
        for row in settings_of(PolitenessSettings, PREFIX)
        if given.get(row.name) is not None
    }
    if "min_delay_s" in set_by_user:
        least_s = max(politeness.min_delay_s, politeness.paced_min_delay_s)
        politeness = replace(politeness, paced_min_delay_s=least_s)
    if "delay_factor" in set_by_user and "paced_share" not in set_by_user:
        share = 1.0 / (1.0 + politeness.delay_factor)
        politeness = replace(politeness, paced_share=min(share, politeness.paced_share))
    return politeness


def effective_settings(config: Config) -> Config:
    """Return the effective settings. In a replay no host is contacted, so none rests, is given up
    or is probed. URLs and patterns have no budgets in it: what these admit depends on the order of
    arrival, which a replay does not repeat."""
    if not config.fetch.replay:
        return config
    politeness = replace(
        config.politeness,
        min_delay_s=0.0,
        max_delay_s=0.0,
        delay_factor=0.0,
        max_crawl_delay_s=0.0,
        max_retry_after_s=0.0,
        backoff_base_s=0.0,
        backoff_max_s=0.0,
        pause_after_failures=_NEVER,
    )
    return replace(
        config,
        politeness=politeness,
        content=replace(config.content, soft_404=False),
        limits=replace(
            config.limits, domain_budget=None, max_urls_per_domain=None, max_urls_per_host=None
        ),
        patterns=replace(config.patterns, pattern_max_pages=None, pattern_barren_pages=None),
        revisits=replace(config.revisits, revisit=RevisitChoice.ONCE),
    )


def _likely_ours(settings: Mapping[str, object], names: set[str]) -> Iterator[str]:
    """Yield the names that are ours or a misspelling of ours, such as CRAWELR_CONTACT."""
    rests = {name.removeprefix(PREFIX) for name in names}
    for name in settings:
        head, mark, rest = name.upper().partition("_")
        if head + mark == PREFIX or (rest in rests and _resembles(head)):
            yield name


def _resembles(head: str) -> bool:
    # 0.8 allows one letter doubled, lost or swapped in seven.
    return difflib.SequenceMatcher(None, head, PREFIX.rstrip("_")).ratio() >= 0.8


KEPT_PATHS: Final = ("CRAWLER_REPLAY", "CRAWLER_RULES", "CRAWLER_SIGNING_KEY")
KEPT_SETTINGS: Final = frozenset(
    {
        *(
            row.name
            for group in (
                *(IdentitySettings, PolitenessSettings, RobotsSettings, LimitSettings),
                *(UrlSettings, LinkSettings, PatternSettings, RevisitSettings),
            )
            for row in settings_of(group, PREFIX)
        ),
        *("CRAWLER_ALLOW_INSIDE", "CRAWLER_LEVEL_SHARES", *KEPT_PATHS),
    }
)
"""The settings that decide about a URL: those of the last start are kept, so that `why` judges by
them. None of them holds a secret or names what was fetched."""


def settings_to_keep(settings: Mapping[str, object]) -> dict[str, object]:
    """Return the settings that decide, as they were given; the others have their defaults."""
    return {name: settings[name] for name in sorted(KEPT_SETTINGS) if name in settings}


def with_kept_settings(
    settings: Mapping[str, object], kept: Mapping[str, object], typed: Collection[str]
) -> dict[str, object]:
    """Return *settings* with those that decide from *kept*, but for those *typed* by the user."""
    own = {name: settings[name] for name in settings if name in typed or name not in KEPT_SETTINGS}
    return {**kept, **own}
