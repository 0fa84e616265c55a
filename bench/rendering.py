"""What rendering brings and what it costs: crawls of sites that are made by scripts, beside
ordinary ones. `make rendering`; `make script-sites` builds the sites.

    python -m bench.rendering --mixed      thirty of each kind
    python -m bench.rendering --tenth      3,000 pages, one site in ten made by scripts
    python -m bench.rendering --shared     three workers over Redis, parts on 50 other hosts
    python -m bench.rendering --against    the same pages by scrapy-playwright
    python -m bench.rendering --beside     plain pages, alone and while a browser works beside them

Rule: the same web is crawled with CRAWLER_RENDER=never, auto and always, each from nothing. Text
and links are those of the columns, CPU and memory those of all processes of the crawl, and
politeness is judged by the servers' books. Ends with 1 where a bar is missed.

The requests of a page beside itself come under its lease, one after the other. So the books are
read page by page: after a page with so many requests of its host comes so many times the rest. What
other hosts are asked for comes in turns of a few requests.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Final, Self
from urllib.parse import urlsplit

import duckdb

from bench.crawls import PROJECT, WITHOUT_DELAYS
from bench.measure import CrawlFailed
from bench.redis_server import RedisMissing, redis_server
from bench.script_sites.build import paths, texts_of
from bench.script_sites.serve import SiteServer
from bench.script_sites.sites import LISTED, Site, read_list
from crawler.content.compiling import load
from crawler.render.browser import BrowserMissing, find_browser
from tests.servers.judge import TOLERANCE_S, Gap, judge
from tests.servers.loopback import Visit

MODES: Final = ("never", "auto", "always")
CRAWL: Final = ("crawl", "web")
REST_S: Final = 0.05
FOUND: Final = 0.95  # of the text and links that `always` finds, at least
MOST_CPU: Final = {"mixed": 0.60, "tenth": 0.15}  # of that of `always`
SHARED: Final = "shared"
LEAST_WHOLE: Final = 0.95  # of the pages of a shared crawl whose text is on other hosts, at least
MOST_CPU_AGAINST: Final = 1.2
MOST_MB: Final = 600.0
LEAST_BESIDE: Final = 0.9  # of the plain pages a second that come without a browser
TRIED: Final = 5  # pages of an ordinary site that may be rendered, and one in so many:
SAMPLE: Final = 50
TENTH: Final = ("react-0", "vue-1", "svelte-3", "angular-4", "react-5", "next-1")
ORDINARY_OF_MIXED: Final = 30
MOST_OF_A_TURN: Final = (
    5  # requests of one page of these sites to one other host, its robots.txt too
)
# Of each ordinary site: with one all are done in 7 s, in two of which the browser starts. Links of
# copies are followed.
BESIDE_COPIES: Final = 4
OF_BESIDE: Final = 3  # sites for the browser, which has work for longer than the ordinary ones take
BESIDE_ROUNDS: Final = 5
POLL_S: Final = 0.25
_PARTS: Final = frozenset(
    (".js", ".css", ".json", ".svg", ".png", ".ico", ".woff", ".woff2", ".map", ".txt", ".xml")
)
_SHOWN: Final = 5  # violations


@dataclass(slots=True)
class ProcessTree:
    """The CPU time and memory of a process and all that it has started, in other PID namespaces
    too, sampled from outside until the process ends."""

    pid: int
    cpu_s: dict[tuple[int, int], float] = field(default_factory=dict)  # by pid and start
    names: dict[tuple[int, int], str] = field(default_factory=dict)  # of their programs
    # Of each program when all together had the most; what several share counts once (PSS).
    peak_bytes: Counter[str] = field(default_factory=Counter)
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread = field(init=False)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._watch, name="process tree")
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        polls = 0
        while not self._ended.wait(POLL_S):
            alive = self._sample()
            if polls % 4 == 0:  # reading it costs milliseconds a process
                now = Counter[str]()
                for pid, name in alive.items():
                    now[name] += _pss_bytes(pid)
                self.peak_bytes = max(self.peak_bytes, now, key=Counter.total)
            polls += 1

    def _sample(self) -> dict[int, str]:
        """Note the CPU time of each process of the tree that is alive, and return their names."""
        rows = dict(_processes())
        found: set[int] = set()
        for pid, (_, start, _, _) in rows.items():
            ancestor, seen = pid, 0
            while ancestor in rows and ancestor != self.pid and seen < len(rows):
                ancestor, seen = rows[ancestor][0], seen + 1
            # One whose parent has ended is known from before.
            if ancestor == self.pid or (pid, start) in self.cpu_s:
                found.add(pid)
        for pid in found:
            _, start, cpu_s, name = rows[pid]
            self.cpu_s[pid, start], self.names[pid, start] = cpu_s, name
        return {pid: rows[pid][3] for pid in found}

    def of_programs(self) -> str:
        """Return the CPU seconds of each program, the most first, and its memory at the peak."""
        parts: dict[str, float] = defaultdict(float)
        for key, cpu_s in self.cpu_s.items():
            parts[self.names[key]] += cpu_s
        return ", ".join(
            f"{name} {parts[name]:.0f} s {self.peak_bytes[name] / 1e6:.0f} MB"
            for name in sorted(parts, key=lambda name: -parts[name])
            if parts[name] >= 1.0
        )


def _processes() -> Iterator[tuple[int, tuple[int, int, float, str]]]:
    """Yield each process with its parent, its start in ticks, its CPU seconds and its name."""
    tick = os.sysconf("SC_CLK_TCK")
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                head, _, tail = (folder / "stat").read_text().rpartition(") ")
            except OSError:
                continue  # it has just ended
            row = tail.split()
            cpu_s = (int(row[11]) + int(row[12])) / tick
            yield int(folder.name), (int(row[1]), int(row[19]), cpu_s, head.partition("(")[2])


def _pss_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")), 0)


_ENTER: Final = ("sh", "-c", 'echo $$ > "$0" && exec "$@"')


@contextmanager
def _cgroup() -> Iterator[Path | None]:
    """Make a control group that counts the CPU time of all that is started in it; None: it cannot
    be made here."""
    first = Path("/sys/fs/cgroup/cpuacct")  # of version 1
    group = (first if first.exists() else first.parent) / f"bench-rendering-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        yield None
        return
    try:
        yield group if (group / "cgroup.procs").exists() else None
    finally:
        with suppress(OSError):  # where something is left in it
            group.rmdir()


def _cgroup_cpu_s(group: Path) -> float:
    first = group / "cpuacct.usage"
    if first.exists():
        return int(first.read_text()) / 1e9
    counts = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
    return int(counts["usage_usec"]) / 1e6


@dataclass(frozen=True, slots=True)
class Cost:
    cpu_s: float
    wall_s: float
    peak_mb: float
    output: str
    programs: str  # what each took


def run(command: Sequence[str], log: Path) -> Cost:
    """Run *command* to its end, with its errors in *log*."""
    started_s = time.monotonic()
    with (
        _cgroup() as group,
        log.open("wb") as errors,
        subprocess.Popen(
            [*_ENTER, str(group / "cgroup.procs"), *command] if group else command,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=PROJECT,
        ) as process,
        ProcessTree(process.pid) as tree,
    ):
        assert process.stdout is not None
        output = process.stdout.read().decode(errors="replace")
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        # Without a group: each misses something, the one what nobody has waited for, the other
        # processes that live shortly.
        cpu_s = (
            _cgroup_cpu_s(group)
            if group
            else max(usage.ru_utime + usage.ru_stime, sum(tree.cpu_s.values()))
        )
    if process.returncode:
        tail = (output + log.read_text(errors="replace"))[-3_000:]
        raise CrawlFailed(f"{' '.join(command)}\nended with {process.returncode}\n{tail}")
    wall_s = time.monotonic() - started_s
    return Cost(cpu_s, wall_s, tree.peak_bytes.total() / 1e6, output, tree.of_programs())


@dataclass(slots=True)
class Found:
    """What a crawl has found: by page, words with their number, and links."""

    words: dict[str, Counter[str]] = field(default_factory=dict)
    links: set[tuple[str, str]] = field(default_factory=set)  # a page, and where it links to
    rendered: set[str] = field(default_factory=set)

    def word_share_of(self, other: Found) -> float:
        """Return which share of the words of *other* is in this, page by page."""
        common = sum(
            (self.words.get(url, Counter()) & words).total() for url, words in other.words.items()
        )
        return common / max(other.word_count, 1)

    def link_share_of(self, other: Found) -> float:
        return len(self.links & other.links) / max(len(other.links), 1)

    @property
    def word_count(self) -> int:
        return sum(words.total() for words in self.words.values())


def found_in(data: Path) -> Found:
    """Read the columns of a crawl in its data directory."""
    found = Found()
    files = [str(path) for path in data.rglob("*.parquet") if "outcomes" not in path.parts]
    if not files:
        raise CrawlFailed(f"there are no columns in {data}")
    with duckdb.connect() as base:
        rows = base.read_parquet(files, union_by_name=True)
        rendered = "rendered" if "rendered" in rows.columns else "false"
        query = f"SELECT url, text, list_transform(outlinks, lambda l: l.url), {rendered} FROM rows"
        for url, text, links, is_rendered in base.execute(query).fetchall():
            found.words[url] = Counter((text or "").split())
            found.links.update((url, link) for link in links)
            if is_rendered:
                found.rendered.add(url)
    return found


@dataclass(frozen=True, slots=True)
class Books:
    """What the servers' books say of a crawl."""

    requests: int
    broken: Counter[str]
    examples: tuple[str, ...]


def read_books(server: SiteServer) -> Books:
    sites = {site.address: site for site in server.sites}
    visits = server.visits
    # Of the gaps below; this finds overlaps, what is forbidden, and what came within a Retry-After.
    rules = {visit.host: replace(server.rules(visit.host), crawl_delay_s=0.0) for visit in visits}
    judged = [(str(each.kind), str(each)) for each in judge(visits, rules, Gap(0.0, 0.0)).found]
    of_host: dict[str, list[Visit]] = defaultdict(list)
    for visit in sorted(visits, key=lambda visit: visit.arrival_s):
        of_host[visit.host].append(visit)
    for host, lines in of_host.items():
        rest_s = max(REST_S, server.rules(host).crawl_delay_s)
        early = early_pages(lines, rest_s) if host in sites else early_turns(lines, rest_s)
        judged += [("asked too soon after an answer", each) for each in early]
    return Books(
        len(visits),
        Counter(kind for kind, _ in judged),
        tuple(text for _, text in judged[:_SHOWN]),
    )


def early_pages(visits: Sequence[Visit], rest_s: float) -> Iterator[str]:
    """Yield the pages that came before the rest after the one before was over: one rest for each
    request that was made for it."""
    count, end_s, before = 0, 0.0, ""
    for visit in visits:
        if Path(urlsplit(visit.path).path).suffix in _PARTS and visit.path != "/robots.txt":
            count += 1
        else:
            early_s = end_s + count * rest_s - visit.arrival_s
            if count and early_s > TOLERANCE_S:
                yield (
                    f"http://{visit.host}{visit.path}: {early_s:.3f} s early, after {before}"
                    f" with {count} requests"
                )
            count, before = 1, visit.path
        end_s = visit.end_s


def early_turns(visits: Sequence[Visit], rest_s: float) -> Iterator[str]:
    """Yield the requests that cannot be of the turn before, nor come after a rest."""
    since_rest, end_s = 0, float("-inf")
    for visit in visits:
        since_rest = 1 if visit.arrival_s >= end_s + rest_s - TOLERANCE_S else since_rest + 1
        if since_rest > MOST_OF_A_TURN:
            yield f"http://{visit.host}{visit.path}: request {since_rest} without a rest"
        end_s = visit.end_s


@dataclass(frozen=True, slots=True)
class Result:
    """One crawl of the table."""

    mode: str
    cost: Cost
    found: Found
    books: Books
    beyond: int  # ordinary pages that were rendered beyond the sample
    whole: tuple[int, int]  # pages of sites made by scripts whose text was found whole, of so many


def crawl(mode: str, server: SiteServer, home: Path, options: argparse.Namespace) -> Result:
    data = home / mode
    shutil.rmtree(data, ignore_errors=True)
    seeds = home / "seeds.txt"
    seeds.write_text("\n".join(server.seeds))
    server.forget()
    given = {
        **WITHOUT_DELAYS,
        "CRAWLER_MIN_DELAY_S": REST_S,
        "CRAWLER_PACED_MIN_DELAY_S": REST_S,
        "CRAWLER_PROGRESS": "off",
        "CRAWLER_DATA_DIR": data,
        **_rendering(mode),
        **dict(each.split("=", 1) for each in options.set),
    }
    workers = ["share", "web", "--workers", str(options.workers)]
    with redis_server(append_only=True) if options.workers > 1 else nullcontext() as redis:
        if redis is not None:
            given["CRAWLER_FRONTIER_URL"] = redis.url
        command = _command({"seeds": seeds, "scope": "host"}, given, workers if redis else CRAWL)
        cost = run(command, home / f"{mode}.log")
    found = found_in(data)
    whole = _whole(server, found)
    return Result(mode, cost, found, read_books(server), _beyond(server.sites, found), whole)


def _rendering(mode: str) -> dict[str, object]:
    return {} if mode == "never" else {"CRAWLER_RENDER": mode, "CRAWLER_RENDER_SHARE": 1}


def _command(
    arguments: dict[str, object], settings: dict[str, object], verb: Sequence[str] = CRAWL
) -> list[str]:
    command = [sys.executable, "-m", "scrapy", *verb]
    for flag, pairs in (("-a", arguments), ("-s", settings)):
        for name, value in pairs.items():
            command += [flag, f"{name}={value}"]
    return command


def _is_ordinary(site: Site) -> bool:
    return not site.is_by_scripts and not site.has_late_part


def _beyond(sites: Iterable[Site], found: Found) -> int:
    """Return how many pages of ordinary sites were rendered beyond the sample of each."""
    rendered = Counter(urlsplit(url).hostname for url in found.rendered)
    pages = Counter(urlsplit(url).hostname for url in found.words)
    return sum(
        max(0, rendered[site.address] - TRIED - pages[site.address] // SAMPLE)
        for site in sites
        if _is_ordinary(site)
    )


def _whole(server: SiteServer, found: Found) -> tuple[int, int]:
    """Return how many pages of sites made by scripts have all words of their paragraphs, and how
    many such pages a crawler can know of: behind a fragment there is no URL of its own."""
    whole = known = 0
    for seed, site in zip(server.seeds, server.sites, strict=True):
        if site.is_by_scripts:
            pages = texts_of(site)[: 1 if site.routes == "hash" else None]
            known += len(pages)
            for path, page in zip(paths(site, pages), pages, strict=True):
                words = Counter(" ".join(page.paragraphs).split())
                whole += words <= found.words.get(seed.rstrip("/") + path, Counter())
    return whole, known


COLUMNS: Final = (
    *("render", "pages", "rendered", "ordinary", "beyond", "whole", "words", "links"),
    *("text of always", "links of always", "CPU s", "CPU of always", "ms a rendered page"),
    *("s", "MB", "requests", "violations", "programs"),
)


def row(result: Result, results: dict[str, Result], sites: Sequence[Site]) -> list[str]:
    found, cost, always = result.found, result.cost, results.get("always")
    never = results.get("never")
    ordinary = {site.address for site in sites if _is_ordinary(site)}
    a_page = (
        (cost.cpu_s - never.cost.cpu_s) / len(found.rendered) * 1_000
        if never and found.rendered
        else None
    )
    figures: list[object] = [
        *(result.mode, len(found.words), len(found.rendered)),
        sum(urlsplit(url).hostname in ordinary for url in found.rendered),
        *(result.beyond, "{} of {}".format(*result.whole), found.word_count, len(found.links)),
        *(
            (found.word_share_of(always.found), found.link_share_of(always.found))
            if always
            else "--"
        ),
        f"{cost.cpu_s:.1f}",
        cost.cpu_s / always.cost.cpu_s if always else "-",
        "-" if a_page is None else f"{a_page:.0f}",
        *(f"{cost.wall_s:.0f}", f"{cost.peak_mb:.0f}"),
        *(result.books.requests, result.books.broken.total(), cost.programs),
    ]
    return [
        f"{each:.3f}"
        if isinstance(each, float)
        else f"{each:,}"
        if isinstance(each, int)
        else str(each)
        for each in figures
    ]


def missed(mix: str, results: dict[str, Result]) -> list[str]:
    """Return the bars that are missed, in words."""
    found = [
        f"{result.mode}: {kind}: {number}"
        for result in results.values()
        for kind, number in result.books.broken.items()
    ]
    auto, always = results.get("auto"), results.get("always")
    if auto and mix == SHARED:
        whole, known = auto.whole
        return [*found, f"auto: {whole} of {known} whole"] if whole < LEAST_WHOLE * known else found
    if auto and auto.beyond:
        found.append(f"auto: {auto.beyond} ordinary pages rendered beyond the sample")
    if auto and always:
        shares = {
            "text": auto.found.word_share_of(always.found),
            "links": auto.found.link_share_of(always.found),
        }
        found += [
            f"auto: {share:.1%} of the {name}" for name, share in shares.items() if share < FOUND
        ]
        cpu = auto.cost.cpu_s / always.cost.cpu_s
        if cpu > MOST_CPU[mix]:
            found.append(f"auto: {cpu:.1%} of the CPU of always, more than {MOST_CPU[mix]:.0%}")
    return found


def measure(mix: str, options: argparse.Namespace, home: Path) -> list[str]:
    """Crawl a mix in each mode, print the table, and return the bars that are missed."""
    sites = chosen(mix, read_list(options.sites), options.every)
    if mix == SHARED:
        options.workers, options.render = max(options.workers, 3), ["auto"]
    results: dict[str, Result] = {}
    with SiteServer(options.sites, sites) as server:
        for mode in options.render:
            results[mode] = crawl(mode, server, home, options)
            print(f"{mode}: {results[mode].cost.wall_s:.0f} s", file=sys.stderr, flush=True)
    print(f"{mix}: {len(sites)} sites\n\n| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}")
    for result in results.values():
        print(f"| {' | '.join(row(result, results, sites))} |")
    for result in results.values():
        for example in result.books.examples:
            print(f"{result.mode}: {example}")
    if options.by_site:
        _print_by_site(sites, results)
    return missed(mix, results)


def _print_by_site(sites: Sequence[Site], results: dict[str, Result]) -> None:
    """Print for each site how many pages, rendered ones, words and links each mode has found."""
    for site in sites:
        parts = []
        for mode, result in results.items():
            found = result.found
            own = [url for url in found.words if urlsplit(url).hostname == site.address]
            figures = (
                len(own),
                sum(url in found.rendered for url in own),
                sum(found.words[url].total() for url in own),
                sum(urlsplit(url).hostname == site.address for url, _ in found.links),
            )
            parts.append(f"{mode} {'/'.join(map(str, figures))}")
        print(f"{site.name:<14}{site.pages:>4} pages: {'; '.join(parts)}")


def chosen(mix: str, sites: Sequence[Site], every: int) -> list[Site]:
    """Return the sites of a mix, or each of so many of them."""
    framework = [site for site in sites if site.routes]
    ordinary = [site for site in sites if not site.routes]
    if mix == SHARED:
        of_others = [site for site in framework if "host" in site.data and site.data != "same host"]
        return [*of_others, *(site for site in framework if site.libraries)][::every]
    if mix == "tenth":
        framework = [site for site in framework if site.name in TENTH]
    else:
        ordinary = ordinary[:ORDINARY_OF_MIXED]
    return [*framework[::every], *ordinary[::every]]


# Plain pages beside the browser.


def beside(options: argparse.Namespace, home: Path) -> list[str]:
    """Crawl ordinary sites beside some that are made by scripts, which a rule lets be rendered, or
    does not; print how many ordinary pages came a second, and return the bar if it is missed."""
    listed = read_list(options.sites)
    ordinary = [
        replace(site, address=site.address.replace("127.40.1.", f"127.40.{copy + 1}."))
        for copy in range(BESIDE_COPIES)
        for site in listed
        if not site.routes
    ]
    framework = [site for site in listed if site.is_by_scripts and site.routes != "hash"]
    by_scripts = framework[:OF_BESIDE]
    rates: dict[bool, list[float]] = {False: [], True: []}
    rendered = 0
    with SiteServer(options.sites, [*ordinary, *by_scripts]) as server:
        seeds = home / "seeds.txt"
        seeds.write_text("\n".join(server.seeds))
        for is_rendered in (False, True) * BESIDE_ROUNDS:  # in turn: the machine has other work
            data = home / "beside"
            shutil.rmtree(data, ignore_errors=True)
            data.mkdir()
            rules = [f'"{site.address}"' for site in by_scripts]
            word = "always" if is_rendered else "never"
            (data / "rules.toml").write_text(
                f'[[rule]]\nfor = [{", ".join(rules)}]\nrender = "{word}"\n'
            )
            server.forget()
            settings = {
                **WITHOUT_DELAYS,
                "CRAWLER_PACED_MIN_DELAY_S": 0,
                "CRAWLER_PROGRESS": "off",
                "CRAWLER_FOLLOW_DUPLICATES": "yes",
                "CRAWLER_DATA_DIR": data,
                "CRAWLER_BROWSER": find_browser(options.browser),
            }
            run(_command({"seeds": seeds, "scope": "host"}, settings), home / "beside.log")
            hosts = {site.address for site in ordinary}
            visits = [each for each in server.visits if each.host in hosts]
            took_s = max(each.end_s for each in visits) - min(each.arrival_s for each in visits)
            rates[is_rendered].append(len(visits) / took_s)
            rendered = max(rendered, len(found_in(data).rendered))
    alone, with_browser = median(rates[False]), median(rates[True])
    print(f"{len(ordinary)} ordinary sites: {alone:.0f} pages a second alone,")
    print(f"{with_browser:.0f} beside the browser, which made {rendered} pages in that crawl")
    share = with_browser / alone
    return [] if share >= LEAST_BESIDE else [f"{share:.0%} of the plain pages beside the browser"]


# Beside scrapy-playwright.


def against(options: argparse.Namespace, home: Path) -> list[str]:
    """Render the same pages by scrapy-playwright and by ours, print both, and return the bars that
    are missed."""
    browser = find_browser(options.browser)
    sites = [
        site for site in read_list(options.sites) if site.is_by_scripts and site.routes != "hash"
    ]
    with SiteServer(options.sites, [replace(site, crawl_delay_s=0.0) for site in sites]) as server:
        urls = [
            seed.rstrip("/") + path
            for seed, site in zip(server.seeds, sites, strict=True)
            for path in paths(site, texts_of(site))
        ]
        urls = urls[:: max(1, len(urls) // options.pages)][: options.pages]
        listed = home / "urls.txt"
        listed.write_text("\n".join(urls))
        theirs = run(
            [
                str(options.sites / "work" / "venv" / "bin" / "python"),
                str(PROJECT / "bench" / "scrapy_playwright_crawl" / "crawl.py"),
                *(str(listed), browser, str(options.tabs)),
            ],
            home / "scrapy-playwright.log",
        )
        counted = json.loads(theirs.output.splitlines()[-1])
        data = home / "ours"
        shutil.rmtree(data, ignore_errors=True)
        settings = {
            **WITHOUT_DELAYS,
            "CRAWLER_PACED_MIN_DELAY_S": 0,
            "CRAWLER_PROGRESS": "off",
            "CRAWLER_DATA_DIR": data,
            "CRAWLER_BROWSER": browser,
            "CRAWLER_RENDER_TABS": options.tabs,
            **_rendering("always"),
            **dict(each.split("=", 1) for each in options.set),
        }
        command = _command({"seeds": listed, "scope": "host", "max_depth": 0}, settings)
        ours = run(command, home / "ours.log")
    found = found_in(data)
    rows = (
        ("scrapy-playwright", theirs, counted["pages"], counted["words"]),
        ("ours, always", ours, len(found.rendered), found.word_count),
    )
    print(f"| | pages | words | CPU s | ms a page | s | MB | programs |\n|{' --- |' * 8}")
    for name, cost, pages, words in rows:
        a_page = cost.cpu_s / max(pages, 1) * 1_000
        print(
            f"| {name} | {pages:,} | {words:,} | {cost.cpu_s:.1f} | {a_page:.0f}"
            f" | {cost.wall_s:.0f} | {cost.peak_mb:.0f} | {cost.programs} |"
        )
    broken = []
    if ours.cpu_s > MOST_CPU_AGAINST * theirs.cpu_s:
        broken.append(f"{ours.cpu_s / theirs.cpu_s:.2f} times the CPU of scrapy-playwright")
    if ours.peak_mb > MOST_MB:
        broken.append(f"{ours.peak_mb:.0f} MB, more than {MOST_MB:.0f}")
    return broken


ALONE: Final = {"against": against, "beside": beside}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.rendering",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sites", type=Path, default=Path(".bench/script-sites"), metavar="DIR")
    for name in (*MOST_CPU, SHARED, "against", "beside"):
        parser.add_argument(f"--{name}", action="append_const", const=name, dest="parts")
    parser.add_argument("--render", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--workers", type=int, default=1, help="that share the crawl over Redis")
    parser.add_argument("--every", type=int, default=1, help="only each of so many sites")
    parser.add_argument("--pages", type=int, default=300, help="of --against")
    parser.add_argument("--tabs", type=int, default=2, help="of --against")
    parser.add_argument("--browser", default="", help="of --against; as CRAWLER_BROWSER")
    parser.add_argument("--by-site", action="store_true", help="print what was found of each site")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="data and logs of the crawls")
    options = parser.parse_args()
    options.sites = options.sites.resolve()
    if not (options.sites / LISTED).exists():
        print(f"no sites in {options.sites}: make script-sites builds them", file=sys.stderr)
        return 2
    broken = []
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        home = options.keep.resolve() if options.keep else Path(folder)
        home.mkdir(parents=True, exist_ok=True)
        try:
            load()  # what numba compiles once in an installation is no cost of a crawl
            for part in options.parts or [*MOST_CPU, SHARED, "against", "beside"]:
                if part in ALONE:
                    broken += ALONE[part](options, home)
                else:
                    broken += [f"{part}: {each}" for each in measure(part, options, home)]
        except (BrowserMissing, CrawlFailed, RedisMissing) as failure:
            print(failure, file=sys.stderr)
            return 2
    for promise in broken:
        print(f"missed: {promise}", file=sys.stderr)
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
