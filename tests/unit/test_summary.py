"""The summary: what is counted, what is printed, and that every key of it is documented."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest
from msgspec.structs import replace
from scrapy.settings import Settings
from scrapy.statscollectors import StatsCollector
from scrapy.utils.test import get_crawler

from crawler.assembly.build import data_dir
from crawler.cli.place import command_for, place_of
from crawler.config.settings import read_config
from crawler.data.data_dir import DataDir, path_of_spider
from crawler.engine.stats import GAP_BOUNDS_S, CrawlStats
from crawler.loop.life import Life, Plan
from crawler.model.counts import DeadUrl, HostChanges, HostPages, OverBudget
from crawler.model.types import (
    Answer,
    Candidate,
    ConfigError,
    HostKey,
    Lease,
    Outcome,
    Pace,
    Purpose,
    Rest,
)
from crawler.policy.refusal import RULES
from crawler.report.endings import (
    ENDINGS,
    FAILED,
    ending,
)
from crawler.report.extensions import replace_file
from crawler.report.messages import frontier_command
from crawler.report.summary import (
    ArchiveFiles,
    BodyPauses,
    FrontierCounts,
    LinkFigures,
    PolitenessFigures,
    RevisitFigures,
    RobotsFigures,
    Summary,
    archive_files,
    encoded,
    nothing_fetched,
    text,
)

DOCUMENT = Path(__file__).parents[2] / "docs" / "summary.md"

QUIET = Summary(
    format=1,
    version="0.1.0",
    spider="web",
    reason="finished",
    ended="Finished: nothing is left to fetch",
    unfinished=False,
    started_at="2026-01-02T03:04:05+00:00",
    duration_s=125.0,
    pages=1,
    pages_per_s=0.008,
    bytes=532,
    duplicates=0,
    near_duplicates=0,
    not_pages={},
    answers={"2xx": 1},
    top_hosts=[HostPages("example.com", 1)],
    links=LinkFigures(0, 0, 0, {}),
    politeness=PolitenessFigures({"gap": 1}, 0),
    robots=RobotsFigures(1, 0, 0),
    errors={},
    dead_letters=0,
    dead_letters_new=[],
    archive=ArchiveFiles("crawl-data/warc", 1, 2_000),
    frontier=FrontierCounts(0, 0, 0, 1, 1, 0, 0),
    data_dir="crawl-data",
)
BUSY = msgspec.structs.replace(
    QUIET,
    reason="shutdown",
    ended="Stopped on request (Ctrl-C or a signal)",
    unfinished=True,
    pages=1_234,
    pages_per_s=9.872,
    bytes=148_000_000,
    duplicates=12,
    near_duplicates=7,
    not_pages={"empty": 3, "soft_404": 2},
    answers={"4xx": 40, "2xx": 1_190, "3xx": 7},
    top_hosts=[HostPages("example.com", 1_200), HostPages("example.org", 34)],
    links=LinkFigures(
        *(4_000, 40_000, 12, {"no_contact": 7, "scheme": 300, "unstorable": 1}),
        top_over_budget=[
            OverBudget("CRAWLER_MAX_URLS_PER_DOMAIN", 10_000, "example.com", 11),
            OverBudget("CRAWLER_MAX_URLS_PER_HOST", 20_000, "www.example.org", 1),
            OverBudget("CRAWLER_DOMAIN_BUDGET", 10, "example.net", 1, 45_012),
        ],
        released=2,
    ),
    politeness=PolitenessFigures({"gap": 1_000, "pause": 2, "retry-after": 1}, 1),
    robots=RobotsFigures(12, 40, 3),
    errors={"timeout": 4, "status_503": 2, "broken": 1},
    dead_letters=7,
    dead_letters_new=[DeadUrl("http://example.com/\x1b[2J", "timeout, tried 4 times")],
    frontier=FrontierCounts(
        *(100, 20, 1, 5_000, 4_000, 7, 3),
        refused=9,
        left=125,
        spilled=4,
        spilled_domains=1,
        sampled_out=5,
    ),
    data_dir="/var/crawl one",
    pauses=BodyPauses(31, 95.2),
    truncated={"disconnect": 1},
    unreadable={"pdf": 2, "xml": 1},
    noindex=3,
    revisits=RevisitFigures(
        results={"changed": 80, "gone": 20, "unchanged": 1_100},
        fresh=0.8125,
        top_changes=[HostChanges("example.org", 79), HostChanges("example.net", 1)],
    ),
)


def test_a_quiet_crawl_in_few_words() -> None:
    assert (
        text(QUIET)
        == """
Finished: nothing is left to fetch.

pages         1 in 2 min 5 s (0.01 a second), 532 B
answers       2xx 1
hosts         1  example.com
links         0 new, 0 seen before
politeness    1 rest of hosts: gap 1
robots.txt    1 fetched; 0 URLs disallowed
archive       1 file, 2.0 kB, in crawl-data/warc
frontier      0 waiting, 1 done, 0 dead
as JSON       crawl-data/summary.json
as a page     crawl-data/report.html
"""
    )


def test_a_busy_crawl_with_what_to_do_about_it() -> None:
    assert (
        text(BUSY)
        == """
Stopped on request (Ctrl-C or a signal).
Still to do: 125 URLs. Run the same command again to continue.

pages         1,234 in 2 min 5 s (9.9 a second), 148 MB
answers       2xx 1,190, 3xx 7, 4xx 40
duplicates    12 pages whose content is stored already
              7 pages with nearly the same text
visited again 1,200 visits: 80 changed, 1,100 unchanged, 20 gone
              81.2 % of the copies were fresh, as estimated
              79 changes on example.org
              1 change on example.net
no pages      3 empty, 2 soft 404
not stored    3 pages marked noindex: only their links are stored (CRAWLER_RESPECT_NOINDEX)
not whole     1 ended early by their servers
unreadable    2 by pdf, 1 by xml: stored without their text and links
hosts         1,200  example.com
                 34  example.org
links         4,000 new, 40,000 seen before, 12 over budget
over budget   4 URLs of 1 domain spilled, 5 sampled out, 2 released
              11 links of example.com, which has its 10,000 URLs (CRAWLER_MAX_URLS_PER_DOMAIN)
              1 link of www.example.org, which has its 20,000 URLs (CRAWLER_MAX_URLS_PER_HOST)
              1 link of example.net, beyond its 10 URLs a round (rank 45,012; CRAWLER_DOMAIN_BUDGET)
refused       300: only http and https are fetched (scheme)
              7: without a contact address only loopback is crawled (no_contact)
              1: it holds what cannot be stored (unstorable)
politeness    1,003 rests of hosts: gap 1,000, pause 2, retry-after 1
              hosts paused: 2, hosts given up: 1, Retry-After obeyed: 1
robots.txt    12 fetched; 40 URLs disallowed, 3 unreachable
pauses        31 times a body waited for memory, 95 s in all (CRAWLER_BODIES_MAX_BYTES)
errors        timeout 4, status 503 2, error in a callback, pipeline or middleware 1 (each try)
dead letters  7 URLs given up
              http://example.com/?[2J: timeout, tried 4 times
              all of them: scrapy frontier dead -s 'CRAWLER_DATA_DIR=/var/crawl one'
archive       1 file, 2.0 kB, in crawl-data/warc
frontier      100 waiting, 20 later, 4,000 done, 7 dead, 9 kept out by rules
              3 put back at the start: the run before did not finish them
as JSON       /var/crawl one/summary.json
as a page     /var/crawl one/report.html
"""
    )


def test_a_crawl_that_did_not_begin_has_no_figures() -> None:
    failed = msgspec.structs.replace(QUIET, reason="bad_seeds", ended="Not begun: bad", pages=0)
    assert text(failed) == "\nNot begun: bad.\n"


def test_a_finished_crawl_says_what_waits_for_larger_budgets() -> None:
    counts = FrontierCounts(0, 0, 0, 1, 1, 0, spilled=70, capped=70, spilled_domains=2)
    shown = text(msgspec.structs.replace(QUIET, frontier=counts))
    assert "\n70 URLs of 2 domains over their budgets in all: a start with a larger" in shown


def test_rules_beyond_the_first_few_are_summed_up() -> None:
    refused = dict.fromkeys(map(str, RULES), 2)
    shown = text(msgspec.structs.replace(QUIET, links=LinkFigures(0, 0, 0, refused)))
    assert f"{2 * (len(RULES) - 6)} by other rules" in shown


def keys(struct: type[Any], prefix: str = "") -> set[str]:
    """Every key of its JSON, dotted; <...> for keys that are data, [] for items of a list."""
    found = set()
    for name, kind in get_type_hints(struct).items():
        found |= _keys_of(kind, prefix + name)
    return found


def _keys_of(kind: Any, name: str) -> set[str]:
    if get_origin(kind) is dict:
        return {f"{name}.<...>"}
    if get_origin(kind) is list:
        return keys(get_args(kind)[0], f"{name}[].")
    is_struct = isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    return keys(kind, f"{name}.") if is_struct else {name}


def test_every_key_is_documented_and_no_other() -> None:
    documented = re.findall(r"^\| `([^`]+)` \|", DOCUMENT.read_text().partition("## ")[0], re.M)
    assert len(documented) == len(set(documented))
    assert set(documented) == keys(Summary)


def test_every_ending_is_documented() -> None:
    document = DOCUMENT.read_text()
    assert [reason for reason in ENDINGS if f"`{reason}`" not in document] == []


def test_the_json_is_the_value() -> None:
    assert msgspec.json.decode(encoded(BUSY), type=Summary) == BUSY
    assert encoded(BUSY).endswith(b"}\n")


@pytest.mark.parametrize(
    ("reason", "failure", "want"),
    [
        pytest.param("finished", "", "Finished: nothing is left to fetch", id="the usual end"),
        pytest.param(
            "store_failed",
            "disk full",
            "Stopped: a store failed; what was acknowledged is safe (disk full)",
            id="with what failed",
        ),
        pytest.param("closespider_itemcount", "", "Stopped: closespider_itemcount", id="unknown"),
    ],
)
def test_endings(reason: str, failure: str, want: str) -> None:
    assert ending(reason, failure) == want


def test_endings_that_are_failures_have_words() -> None:
    assert set(ENDINGS) >= FAILED


def test_the_archive_counts_what_is_still_open(tmp_path: Path) -> None:
    for name, length in {"a.warc.gz": 10, "b.warc.gz.open": 5, "notes.txt": 100}.items():
        (tmp_path / name).write_bytes(b"x" * length)
    assert archive_files(tmp_path) == ArchiveFiles(str(tmp_path), 2, 15)
    assert archive_files(tmp_path / "none") == ArchiveFiles(str(tmp_path / "none"), 0, 0)


def test_a_reader_sees_the_old_file_or_the_new(tmp_path: Path) -> None:
    file = tmp_path / "summary.json"
    file.write_bytes(b"old")
    with file.open("rb") as reader:
        replace_file(file, b"new")
        assert reader.read() == b"old"
    assert file.read_bytes() == b"new"
    assert [each.name for each in tmp_path.iterdir()] == ["summary.json"]


@pytest.mark.parametrize(
    ("settings", "want"),
    [
        pytest.param({}, "crawl-data", id="nothing set"),
        pytest.param({"CRAWLER_DATA_DIR": "/a"}, "/a", id="ours"),
        pytest.param({"JOBDIR": "/j"}, "/j", id="scrapyd's"),
        pytest.param({"CRAWLER_DATA_DIR": "/a", "JOBDIR": "/j"}, "/a", id="ours counts first"),
        pytest.param({"CRAWLER_DATA_DIR": "/a/%(name)s/b"}, "/a/shop/b", id="the spider's"),
        pytest.param({"JOBDIR": "/j-%(name)s"}, "/j-shop", id="scrapyd's for each spider"),
        pytest.param({"CRAWLER_DATA_DIR": "/100%(of)"}, "/100%(of)", id="no field"),
    ],
)
def test_the_data_directory(settings: dict[str, str], want: str) -> None:
    given = Settings(settings)
    assert data_dir(given, read_config(given), "shop") == Path(want)


def test_a_data_directory_has_no_other_field_of_a_spider() -> None:
    with pytest.raises(ConfigError, match=r"only its name .* not %\(time\)s$"):
        path_of_spider("/a/%(name)s/%(time)s", "shop")


def test_a_command_has_to_be_told_which_spiders_data_directory(tmp_path: Path) -> None:
    given = f"{tmp_path}/%(name)s/data"
    with pytest.raises(ConfigError, match=rf"-s CRAWLER_DATA_DIR={tmp_path}/news/data$"):
        path_of_spider(given, "")
    for name in ("shop", "wiki"):
        DataDir(tmp_path / name / "data").close()
    (tmp_path / "other" / "data").mkdir(parents=True)
    shop, wiki = tmp_path / "shop/data", tmp_path / "wiki/data"
    with pytest.raises(ConfigError, match=rf"={shop} \(there are {shop}, {wiki}\)$"):
        path_of_spider(given, "")


def test_a_frontier_in_redis_is_looked_at_whichever_spider_it_is(tmp_path: Path) -> None:
    given = {"CRAWLER_DATA_DIR": f"{tmp_path}/%(name)s", "CRAWLER_FRONTIER_URL": "redis://a/0"}
    place = place_of(Settings(given), read_config(given))
    assert command_for("dead", Settings(given), place)


def test_the_commands_to_type() -> None:
    assert frontier_command("dead", "crawl-data") == "scrapy frontier dead"
    assert frontier_command("dead", "/a b") == "scrapy frontier dead -s 'CRAWLER_DATA_DIR=/a b'"


NOTHING = replace(QUIET, pages=0, frontier=FrontierCounts(0, 0, 0, 2, 0, 2, 0), dead_letters=2)


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param(QUIET, "", id="a page was fetched"),
        pytest.param(
            replace(NOTHING, errors={"connect": 8}, dead_letters_new=[DeadUrl("http://a/", "no")]),
            "no page was fetched: no connection 8; http://a/: no",
            id="hosts that cannot be reached",
        ),
        pytest.param(
            replace(NOTHING, dead_letters=0, links=LinkFigures(0, 0, 0, {"scheme": 2})),
            "no page was fetched: only http and https are fetched (scheme) 2",
            id="seeds that are all refused",
        ),
        pytest.param(
            replace(
                NOTHING,
                robots=RobotsFigures(1, 2, 0),
                frontier=FrontierCounts(0, 0, 0, 2, 2, 0, 0),
                dead_letters=0,
            ),
            "no page was fetched: robots.txt forbids it 2",
            id="a site that forbids it",
        ),
        pytest.param(
            NOTHING,
            "no page was fetched: every URL was given up in an earlier run",
            id="the same command again",
        ),
        pytest.param(
            replace(NOTHING, reason="until", frontier=FrontierCounts(0, 0, 0, 0, 0, 0, 0)),
            "the time was over before a seed was read: give a later -a until= or -a max_time=",
            id="its time was over before its workers had begun",
        ),
        pytest.param(
            replace(NOTHING, reason="shutdown", errors={"connect": 1}), "", id="stopped by a user"
        ),
        pytest.param(
            replace(NOTHING, errors={"connect": 1}, frontier=FrontierCounts(0, 0, 0, 9, 8, 1, 0)),
            "",
            id="a later run of a crawl that had fetched pages",
        ),
    ],
)
def test_the_summary_of_a_crawl_that_fetched_nothing_gives_the_reason(
    given: Summary, want: str
) -> None:
    assert nothing_fetched(given) == want


def stats() -> CrawlStats:
    return CrawlStats(StatsCollector(get_crawler()))


def life(purpose: Purpose = Purpose.PAGE, **given: Any) -> Life:
    url = Candidate("http://a/", 1, HostKey("a"), "a")
    return Life(Plan(lease=Lease(1, url, Pace(), 0.0), url=url.url, purpose=purpose), **given)


def outcome(**given: Any) -> Outcome:
    return Outcome(**{"at": 0.0, "url": "http://a/", "host": "a", "fate": "done", **given})


@pytest.mark.parametrize(
    ("life", "outcome", "want"),
    [
        pytest.param(
            life(answer=Answer(1.0, 200)),
            outcome(status=200, size=10),
            {"fate/done": 1, "status/2xx": 1, "bytes": 10, "pages": 1},
            id="a page",
        ),
        pytest.param(
            life(answer=Answer(1.0, 200)),
            outcome(status=200, reason="duplicate"),
            {"fate/done": 1, "status/2xx": 1, "pages": 1, "duplicates": 1},
            id="a duplicate is a page too",
        ),
        pytest.param(
            life(answer=Answer(1.0, 503)),
            outcome(status=503, fate="retry", failure="status_503"),
            {"fate/retry": 1, "status/5xx": 1, "error/status_503": 1},
            id="a 503 that is tried again is no page",
        ),
        pytest.param(
            life(answer=Answer(1.0, error="timeout")),
            outcome(fate="dead", reason="timeout, tried 4 times", failure="timeout"),
            {"fate/dead": 1, "error/timeout": 1},
            id="no answer",
        ),
        pytest.param(
            life(answer=Answer(1.0, 200), error="ValueError"),
            outcome(status=200, fate="retry", failure="broken"),
            {"fate/retry": 1, "status/2xx": 1, "error/broken": 1},
            id="our own error",
        ),
        pytest.param(
            life(answer=Answer(1.0, 302)),
            outcome(status=302, fate="dead", reason="too many redirects", failure="redirects"),
            {"fate/dead": 1, "status/3xx": 1, "error/redirects": 1, "pages": 1},
            id="too many redirects",
        ),
        pytest.param(
            life(),
            outcome(reason="robots.txt: Disallow: /"),
            {"fate/done": 1, "robots/disallowed": 1},
            id="disallowed",
        ),
        pytest.param(
            life(),
            outcome(
                fate="dead",
                reason="robots.txt unreachable: status 500",
                failure="robots_unreachable",
            ),
            {"fate/dead": 1, "error/robots_unreachable": 1, "robots/unreachable": 1},
            id="robots.txt unreachable",
        ),
        pytest.param(
            life(purpose=Purpose.ROBOTS, answer=Answer(1.0, 200)),
            outcome(fate="put_back", status=200),
            {"fate/put_back": 1, "robots/fetched": 1},
            id="a robots.txt is no page",
        ),
        pytest.param(
            life(purpose=Purpose.ROBOTS, answer=Answer(1.0, error="connect")),
            outcome(fate="put_back"),
            {"fate/put_back": 1, "robots/fetched": 1, "robots/failed": 1, "error/robots_failed": 1},
            id="a robots.txt without an answer is an error",
        ),
        pytest.param(
            life(purpose=Purpose.ROBOTS, answer=Answer(1.0, 503)),
            outcome(fate="put_back", status=503),
            {"fate/put_back": 1, "robots/fetched": 1, "robots/failed": 1, "error/robots_failed": 1},
            id="and so is one with a status of trouble",
        ),
        pytest.param(
            life(purpose=Purpose.ROBOTS, answer=Answer(1.0, error="cancelled")),
            outcome(fate="put_back"),
            {"fate/put_back": 1, "robots/fetched": 1},
            id="one that we ended is none",
        ),
        pytest.param(
            life(purpose=Purpose.ROBOTS),
            outcome(fate="put_back"),
            {"fate/put_back": 1},
            id="a robots.txt that waits for another host was not fetched",
        ),
    ],
)
def test_counted_figures(life: Life, outcome: Outcome, want: dict[str, int]) -> None:
    counted = stats()
    counted.count_completed(life, outcome)
    assert dict(counted.counters) == want
    assert counted.figures.errors == sum(n for key, n in want.items() if key.startswith("error/"))


def rest(seconds: float, failures: int = 1) -> Rest:
    return Rest(seconds, Pace(failures=failures), "backoff")


def test_the_failing_host_that_is_asked_first_is_named() -> None:
    counted = stats()
    refused, late = Answer(0.1, error="connect"), Answer(0.1, 503)
    counted.count_rest(HostKey("a"), [refused], rest(50.0), now=100.0)
    counted.count_rest(HostKey("b"), [late], rest(20.0), now=100.0)
    counted.count_rest(HostKey("c"), [Answer(0.1, 200)], rest(1.0), now=100.0)
    named = [counted.next_failing(now) for now in (100.0, 130.0, 200.0)]
    assert [each and (each.host, each.until, each.why) for each in named] == [
        ("b", 120.0, "status 503"),
        ("a", 150.0, "no connection"),
        None,
    ]
    counted.count_rest(HostKey("a"), [Answer(0.1, 404)], rest(1.0), now=110.0)
    assert counted.next_failing(130.0) is None, "it has answered"


@pytest.mark.parametrize(
    ("now", "under_way", "want"),
    [
        pytest.param(101.0, 0, 0.0, id="hosts that answer rest"),
        pytest.param(115.0, 1, 0.0, id="a long fetch is under way"),
        pytest.param(115.0, 0, 15.0, id="nothing has been fetched for seconds"),
    ],
)
def test_a_failing_host_is_waited_for_only_after_seconds_without_a_fetch(
    now: float, under_way: int, want: float
) -> None:
    counted = stats()
    counted.begin(20.0)
    assert counted.idle_s(80.0, 0) == 60.0, "all hosts rested at the start"
    counted.count_rest(HostKey("a"), [Answer(0.1, error="connect")], rest(50.0), now=90.0)
    counted.count_begun(HostKey("b"), 100.0)
    assert counted.idle_s(now, under_way) == want
    assert counted.waits_for(now, under_way).startswith("a until") is (want > 0)


def test_failing_hosts_are_logged_at_their_first_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    counted, refused = stats(), Answer(0.1, error="connect")
    with caplog.at_level("INFO"):
        for failures in (1, 2, 3):
            counted.count_rest(HostKey("a"), [refused], rest(50.0, failures), now=100.0)
        assert len(caplog.messages) == 1
        assert "a until" in caplog.messages[0] and "(no connection)" in caplog.messages[0]
        for number in range(5_000):
            counted.count_rest(HostKey(f"h{number}"), [refused], rest(50.0), now=100.0)
    assert len(caplog.messages) == 1_000, "of a crawl with many dead hosts the log stays short"


def test_the_stats_are_bounded() -> None:
    counted = stats()
    for number in range(50_000):
        counted.count_completed(life(), outcome(host=f"h{number}", status=404, fate="dead"))
    assert len(counted.by_host) <= 20_000
    assert len(counted.dead) == 5
    assert len(counted.counters) < 10


def test_scrapys_stats_agree() -> None:
    counted = stats()
    counted.count("links/new", 3)
    counted.count("links/seen", 0)
    counted.count_page("text/html", "en")
    counted.hand_over()
    assert counted._stats.get_stats() == {"crawler/links/new": 3}
    counted.count("links/new", 2)
    counted.hand_over()
    counted.hand_over()
    assert counted._stats.get_stats() == {"crawler/links/new": 5}


@pytest.mark.parametrize(
    ("begun_at", "want"),
    [
        pytest.param(15.0, "0.01", id="at once"),
        pytest.param(15.02, "0.1", id="some milliseconds late"),
        pytest.param(15.0 + 3000, "3600", id="within the hour"),
        pytest.param(15.0 + 4000, "more", id="later"),
        pytest.param(14.9, "early", id="before the rest was over"),
    ],
)
def test_the_gap_over_what_was_due(begun_at: float, want: str) -> None:
    counted, host = stats(), HostKey("a")
    counted.count_begun(host, 1.0)  # the first request to a host counts nothing
    counted.count_rest(host, [Answer(1.0, 200)], Rest(5.0, Pace()), 10.0)
    counted.count_begun(host, begun_at)
    counted.count_begun(host, begun_at)
    gaps = {name: n for name, n in counted.counters.items() if name.startswith("gap_over_due/")}
    assert gaps == {f"gap_over_due/{want}": 1}
    names = ["early", *(f"{bound:g}" for bound in GAP_BOUNDS_S), "more"]
    assert counted.gap_over_due_s.counts == [int(name == want) for name in names]


def test_the_rests_that_are_kept_are_bounded() -> None:
    counted = stats()
    for number in range(20_001):
        counted.count_rest(HostKey(str(number)), [Answer(1.0, 200)], Rest(5.0, Pace()), 0.0)
    for number in range(20_001):
        counted.count_begun(HostKey(str(number)), 5.0)
    assert counted.counters["gap_over_due/0.01"] == 20_000


def test_types_and_languages_are_names_or_others() -> None:
    counted = stats()
    for media_type, language in (
        ("text/html", "de"),
        ("text/html", "de-CH"),
        ("application/atom+xml", "DE_de"),
        ("text/html<script>", "<b>"),
        ("", ""),
        ("x" * 200 + "/y", "deutsch"),
    ):
        counted.count_page(media_type, language)
    assert counted.counters == {
        "type/text/html": 2,
        "type/application/atom+xml": 1,
        "type/other": 3,
        "language/de": 3,
        "language/other": 2,
    }


def test_types_are_a_few_hundred_at_most() -> None:
    counted = stats()
    for number in range(1_000):
        counted.count_page(f"x/{number}", "")
    assert len(counted.counters) <= 202
    assert counted.counters.total() == 1_000
