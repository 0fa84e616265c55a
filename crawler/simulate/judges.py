"""What a simulated crawl did wrong, judged from outside: its requests by the logs of all web
servers, and what became of its URLs by the outcome log and the web.

Rule: nothing of the crawler is asked but which URLs it admits. What is required is what the
documents say, in code of its own; where a crash may have undone something, less is required.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import Final

from crawler.model.choices import HostUnit
from crawler.model.types import Candidate, Outcome
from crawler.model.url import authority_of, registered_domain
from crawler.policy.pacing import FIRST_ANSWERS
from crawler.policy.patterns import pattern_of
from crawler.policy.politeness import LEFT
from crawler.policy.robots_cache import UNREACHABLE
from crawler.simulate.run import Run
from crawler.simulate.run_log import PRECISION_S, Hit, Loss, RulesChange
from crawler.simulate.web import DAY_S, ROBOTS_PATH, is_robots

_IN_FORCE_S: Final = 2.0  # within which new rules are in force
_UNDER_WAY_S: Final = 5.0  # from a lease to its request, at most
_IN_A_ROW: Final = 3  # challenges that pause a host
_PROBES: Final = 5  # after which it is left
_LATE_S: Final = 250.0  # beyond the longest rest that an answer can ask for; a pause is longer
_ROBOTS_HOPS: Final = 5
_VISITS: Final = 3  # of one URL in a chain of redirects
_INTERVALS_S: Final = {
    "adaptive": 600.0,
    "every 10m": 600.0,
    "every 20m": 1_200.0,
    "every 12h": 43_200.0,
    "every 2d": 172_800.0,
}
_WHOLE_S: Final = 2.0  # dates of visits are whole seconds, and of before the connection
_OK: Final = 200
_FINAL: Final = frozenset({"done", "moved", "dead"})


def judge(found: Run) -> list[str]:
    """Return what *found* did wrong, one sentence for each."""
    are_grouped = found.policy.config.politeness.host_unit is HostUnit.ADDRESS
    return [
        *PolitenessJudge(found).findings(),
        *(AddressJudge(found).findings() if are_grouped else ()),
        *_rounds(found),
        *(OutcomeJudge if found.world.until is None else VisitJudge)(found).findings(),
    ]


def _rounds(found: Run) -> Iterator[str]:
    """Yield what was over the caps of a round, and which rounds overlap."""
    caps = found.world.machine.frontier.rounds
    if caps is None:
        return
    by_round: defaultdict[int, list[Hit]] = defaultdict(list)
    for hit in found.log.hits:
        if hit.round:
            by_round[hit.round].append(hit)
    until = 0.0
    for number, hits in sorted(by_round.items()):
        begin, end = min(hit.start for hit in hits), max(hit.start for hit in hits)
        if begin < until:
            yield f"round {number} began before the one before was over"
        until = end
        if caps.seconds is not None and end > begin + caps.seconds + _UNDER_WAY_S:
            yield f"round {number} took {end - begin:.0f} s"
        hosts = Counter(hit.host for hit in hits)
        domains = Counter(registered_domain(hit.host) for hit in hits)
        for asked, most in (
            (len(hits), caps.urls),
            (max(hosts.values()), caps.per_host),
            (max(domains.values()), caps.per_domain),
        ):
            if most is not None and asked > most:
                yield f"{asked} URLs in round {number}, of {most}"


def failed(hit: Hit) -> bool:
    """Return whether its answer shows the host, not the page, in trouble, or refuses robots."""
    is_trouble = hit.status is None or hit.status == 429 or hit.status >= 500 or hit.error != ""
    return is_trouble or hit.is_challenge


class _RobotsCopy:
    """A robots.txt as it was served to us at a time."""

    def __init__(self, at: float, text: str | None, *, is_lost: bool) -> None:
        """*text*: None if there is none, so all is allowed. *is_lost*: perhaps, by a crash in the
        moment in which it came."""
        self.at, self.is_file, self.is_lost = at, text is not None, is_lost
        fields = [line.partition(": ") for line in (text or "").splitlines()]
        self._disallowed = tuple(value for name, _, value in fields if name == "Disallow")
        delays = [float(value) for name, _, value in fields if name == "Crawl-delay"]
        self.crawl_delay_s = max(delays, default=0.0)

    def allows(self, url: str) -> bool:
        return not url.startswith(self._disallowed, len(authority_of(url)))


@dataclass(slots=True)
class _HostHistory:
    """What one host has seen of us."""

    last: Hit | None = None
    under_way: list[Hit] = field(default_factory=list)  # when the last one began, with it
    quiet_until: float = 0.0
    why: str = ""
    failures: int = 0  # in a row, of which we know
    pauses: int = 0
    pages: int = 0  # answered without trouble
    challenges: int = 0  # in a row, of which we know
    tried: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _RobotsHistory:
    """What one authority has served as its robots.txt."""

    copies: list[_RobotsCopy] = field(default_factory=list)
    trouble_at: float = 0.0
    hops: int = 0


class PolitenessJudge:
    """Judges when each host was contacted, and for what."""

    def __init__(self, found: Run) -> None:
        self._run, self._log = found, found.log
        self._rules = found.policy.config.politeness
        self._has_cut_offs = bool(found.servers.cut_offs)
        self._hosts: defaultdict[str, _HostHistory] = defaultdict(_HostHistory)
        self._robots: defaultdict[str, _RobotsHistory] = defaultdict(_RobotsHistory)
        # When hosts that never answered were given up: that ends their pauses.
        self._given_up = {
            each.host: each.at
            for each in self._log.outcomes
            if each.fate == "dead" and "has never answered" in each.reason
        }

    def findings(self) -> Iterator[str]:
        for hit in self._log.hits:
            visits = self._hosts[hit.host]
            yield from self._too_early(hit, visits)
            yield from self._forbidden(hit)
            yield from self._against_the_operator(hit)
            self._note_robots(hit)
            self._note_visit(hit, visits)

    def _too_early(self, hit: Hit, visits: _HostHistory) -> Iterator[str]:
        visits.under_way = [each for each in visits.under_way if hit.start < each.end - PRECISION_S]
        if len(visits.under_way) >= self._connections(hit, visits):
            others = ", ".join([each.url for each in visits.under_way])
            yield f"{hit.url} was asked for while {others} was being answered"
        elif (
            visits.last is not None
            and visits.last.end < self._given_up.get(hit.host, 0.0) <= hit.start
        ):
            return
        elif hit.start < visits.quiet_until - PRECISION_S:
            early_s = visits.quiet_until - hit.start
            yield f"{hit.url} was asked for {early_s:.3f} s too early: {visits.why}"

    def _connections(self, hit: Hit, visits: _HostHistory) -> int:
        """Return how many requests to its host may be under way, if its server stays fast."""
        copy = self._copy(authority_of(hit.url), hit.start, False)
        if visits.pages < FIRST_ANSWERS or (copy is not None and copy.crawl_delay_s):
            return 1
        in_force = self._in_force(hit.start - _IN_FORCE_S, hit.start)
        found = [each.rules.of_url(hit.url) for each in in_force]
        return max([each.connections or self._rules.paced_connections for each in found])

    def _note_visit(self, hit: Hit, visits: _HostHistory) -> None:
        visits.last = hit
        visits.under_way.append(hit)
        visits.pages += not (failed(hit) or is_robots(hit.url))
        for until, why in self._rests(hit, visits):
            if until > visits.quiet_until:
                visits.quiet_until, visits.why = until, why

    def _rests(self, hit: Hit, visits: _HostHistory) -> Iterator[tuple[float, str]]:
        """Yield until when its host is to be left alone after *hit*, at least, and why."""
        rules, is_lost = self._rules, hit.is_cut or self._log.may_be_lost(hit)
        if self._log.is_unsynced(hit.end):  # not even its lease may be known any more
            if not failed(hit):
                visits.failures = visits.pauses = visits.challenges = 0
            return
        if (pause_s := self._challenge_pause_s(hit, visits, is_lost)) > 0.0:
            what = "is left" if pause_s == inf else "is paused"
            yield hit.end + pause_s, f"it sent {visits.challenges} challenges in a row, and {what}"
        took_s = hit.end - hit.start
        own_s = self._own_s(hit, visits, took_s)
        delays = [
            each.rules.of_url(hit.url).delay_s
            for each in self._in_force(hit.end - _IN_FORCE_S, hit.end)
        ]
        if any(delay_s is not None for delay_s in delays):
            own_s = 0.0 if is_lost else min([own_s if each is None else each for each in delays])
        if self._connections(hit, visits) == 1:  # else others may have been leased with it
            yield hit.end + own_s, f"its last answer took {took_s:.3f} s"
        copy = self._copy(authority_of(hit.url), hit.end, False)
        # One that came from another host since the lease is known too late for this rest.
        leased_at = hit.start - _UNDER_WAY_S
        is_known = copy is not None and (copy.at <= leased_at or copy.at == hit.end)
        if copy and is_known and copy.crawl_delay_s and hit.start - copy.at < DAY_S:
            asked_s = min(copy.crawl_delay_s, rules.max_crawl_delay_s)
            yield hit.end + asked_s, f"its Crawl-delay is {copy.crawl_delay_s:g} s"
        if hit.retry_after_s and (not is_lost or self._log.is_head_kept(hit)):
            asked_s = min(hit.retry_after_s, rules.max_retry_after_s)
            yield hit.head_at + asked_s, f"its Retry-After asked for {hit.retry_after_s:g} s"
        if (pause_s := self._pause_s(hit, visits, is_lost)) > 0.0:
            yield hit.end + pause_s, "it had failed often, and is paused"

    def _own_s(self, hit: Hit, visits: _HostHistory, took_s: float) -> float:
        """Return the shortest rest after an answer that took so long. A server that has answered
        some pages without trouble may be asked more often."""
        rules = self._rules
        factor, least_s = rules.delay_factor, rules.min_delay_s
        if visits.pages >= FIRST_ANSWERS and not failed(hit):
            factor = min(factor, (1.0 - rules.paced_share) / rules.paced_share)
            least_s = min(least_s, rules.paced_min_delay_s)
        return min(max(factor * took_s, least_s), rules.max_delay_s)

    def _pause_s(self, hit: Hit, visits: _HostHistory, is_lost: bool) -> float:
        """Count a failure, and return how long the host is paused for it."""
        if not failed(hit) or hit.is_challenge:
            if not hit.is_cut:
                visits.failures = visits.pauses = 0
            return 0.0
        if is_lost or (hit.status is None and self._has_cut_offs) or len(visits.under_way) > 1:
            return 0.0  # perhaps it was not counted
        visits.failures += 1
        if hit.error and hit.status is not None:  # its body broke off
            visits.pauses = 0
            return 0.0
        if not visits.pauses and visits.failures < self._rules.pause_after_failures:
            return 0.0
        visits.pauses += 1
        return min(self._rules.pause_s * 2.0 ** (visits.pauses - 1), self._rules.pause_max_s)

    def _challenge_pause_s(self, hit: Hit, visits: _HostHistory, is_lost: bool) -> float:
        """Count a challenge, and return how long the host is paused for it; inf: it is left. A page
        ends the row, and the further tries of one URL are none at a host with pages."""
        is_further_try = hit.url in visits.tried and visits.pages > 0
        visits.tried.add(hit.url)
        if not failed(hit):
            if not is_robots(hit.url) and hit.status == 200:
                visits.challenges = 0
            return 0.0
        if is_lost or (hit.status is None and self._has_cut_offs):
            return 0.0  # perhaps it was not counted
        if hit.is_challenge and (visits.challenges >= _IN_A_ROW or not is_further_try):
            visits.challenges += 1
        more = visits.challenges - _IN_A_ROW
        if more < 0:
            return 0.0
        if more >= _PROBES:
            return inf
        longest_s = self._rules.challenge_pause_max_s
        return min(self._rules.challenge_pause_s * 2.0**more, longest_s)

    def _forbidden(self, hit: Hit) -> Iterator[str]:
        """Judge by the robots.txt in force; by an older one too, if a crash may have undone the
        newest."""
        if is_robots(hit.url):
            return
        problem = self._problem(hit, with_lost=False)
        if problem and self._problem(hit, with_lost=True):
            yield f"{hit.url} was asked for {problem}"

    def _problem(self, hit: Hit, *, with_lost: bool) -> str:
        authority = authority_of(hit.url)
        copy, history = self._copy(authority, hit.start, with_lost), self._robots[authority]
        if copy is None:
            return "before its robots.txt"
        valid_from = copy.at
        if copy.is_file and copy.at < history.trouble_at:
            valid_from = history.trouble_at  # an old copy may be used while there is no new one
        if hit.start > valid_from + DAY_S + _UNDER_WAY_S:
            return f"by a robots.txt of {(hit.start - copy.at) / 3600:.1f} hours ago"
        return "" if copy.allows(hit.url) else "though its robots.txt forbids it"

    def _note_robots(self, hit: Hit) -> None:
        if not is_robots(hit.url) or hit.is_cut:
            return
        path = hit.url[len(authority_of(hit.url)) :]
        is_first = path == ROBOTS_PATH
        authority = authority_of(hit.url) if is_first else f"http://{path.split('/')[2]}"
        history, is_lost = self._robots[authority], self._log.may_be_lost(hit)
        if failed(hit):
            history.trouble_at = hit.end
            return
        history.hops = 1 if is_first else history.hops + 1
        if hit.status == 302 and history.hops <= _ROBOTS_HOPS:
            return
        is_file = hit.status == 200 and not hit.content.is_html
        text = hit.content.text if is_file else None
        history.copies.append(_RobotsCopy(hit.end, text, is_lost=is_lost))

    def _copy(self, authority: str, at: float, with_lost: bool) -> _RobotsCopy | None:
        """Return the last robots.txt of *authority* that was served until *at*."""
        for copy in reversed(self._robots[authority].copies):
            if copy.at <= at and (with_lost or not copy.is_lost):
                return copy
        return None

    def _against_the_operator(self, hit: Hit) -> Iterator[str]:
        earlier = hit.start - _IN_FORCE_S
        in_force = self._in_force(earlier, hit.start)
        for what in ("paused", "refused"):
            if all(
                (each.rules.paused_until(at) or each.rules.of_url(hit.url).paused_until(at))
                if what == "paused"
                else each.rules.of_url(hit.url).refuse
                for each in in_force
                for at in (earlier, hit.start)
            ):
                yield f"{hit.url} was asked for though the operator has {what} it"

    def _in_force(self, begin: float, end: float) -> list[RulesChange]:
        """Return the rules that were in force at some time from *begin* to *end*."""
        changes = self._log.rules_changes
        first = max(n for n, each in enumerate(changes) if each.at <= begin or n == 0)
        return [each for each in changes[first:] if each.at <= end]


class AddressJudge:
    """Judges when each address was contacted for one host after another. What is asked of one host
    is the business of PolitenessJudge."""

    def __init__(self, found: Run) -> None:
        self._log, self._servers = found.log, found.servers
        self._least_s = found.policy.config.politeness.paced_min_delay_s
        self._longest_s = found.policy.config.politeness.max_retry_after_s
        self._may_be_hurried = any("delay_s" in each.text for each in self._log.rules_changes)

    def findings(self) -> Iterator[str]:
        last: defaultdict[str, dict[str, Hit]] = defaultdict(dict)  # by address, then host
        for hit in self._log.hits:
            at = self._servers.addresses(hit.host)
            if not at:
                continue
            of_address = last[at[0]]
            for other in of_address.values():
                if other.host != hit.host and (why := self._too_early(hit, other)):
                    yield f"{hit.url} was asked for at {at[0]} {why}"
            of_address[hit.host] = hit

    def _too_early(self, hit: Hit, other: Hit) -> str:
        """Return what *hit*, after or during *other*, of another host, is at fault for."""
        is_lost = other.is_cut or self._log.may_be_lost(other)
        if self._log.is_unsynced(other.end):  # not even its lease may be known any more
            return ""
        if hit.start < other.end - PRECISION_S:
            return f"while {other.url} was being answered"
        if hit.start < other.end + self._least_s - PRECISION_S and not self._may_be_hurried:
            return f"{hit.start - other.end:.3f} s after {other.url}"
        is_asked = other.retry_after_s and other.status in (429, 503)
        if is_asked and (not is_lost or self._log.is_head_kept(other)):
            until = other.head_at + min(other.retry_after_s, self._longest_s)
            if hit.start < until - PRECISION_S:
                return f"{until - hit.start:.3f} s before the Retry-After of {other.url} was over"
        return ""


class OutcomeJudge:
    """Judges what became of each URL."""

    def __init__(self, found: Run) -> None:
        self._run, self._log = found, found.log
        self._admission = found.admission
        self._hits: defaultdict[str, list[Hit]] = defaultdict(list)
        self._of_host: defaultdict[str, list[Hit]] = defaultdict(list)
        for hit in self._log.hits:
            self._hits[hit.url].append(hit)
            self._of_host[hit.host].append(hit)
        self._outcomes: defaultdict[str, list[Outcome]] = defaultdict(list)
        for outcome in self._log.outcomes:
            self._outcomes[outcome.url].append(outcome)

    def findings(self) -> Iterator[str]:
        if not self._log.is_over:
            yield f"the crawl was not over: {self._log.failure}"
            return
        yield from self._lost()
        yield from self._records_lost()
        yield from self._fetched_twice()
        yield from self._tried_too_often()
        yield from self._given_up_wrongly()
        yield from self._too_late()

    def _lost(self) -> Iterator[str]:
        """What was found, may be fetched, and has no outcome."""
        if self._run.left:
            yield f"{self._run.left} URLs are left, and the crawl says that it is over"
        final = [outcome.url for outcome in self._log.outcomes if outcome.fate in _FINAL]
        ended = {each.key for each in self._admission.select(final, None, 0).candidates}
        by_pattern: defaultdict[tuple[str, str], int] = defaultdict(int)
        for outcome in self._log.outcomes:
            by_pattern[outcome.host, pattern_of(outcome.url)] += outcome.fate == "done"
        limits = self._run.policy.config.patterns
        enough = min(limits.pattern_max_pages or 1, limits.pattern_barren_pages or 1)
        for source, candidate in self._found():
            if candidate.key in ended:
                continue
            pattern = pattern_of(candidate.url)
            if not pattern or by_pattern[candidate.host, pattern] < enough:
                yield f"{candidate.url}, which {source} led to, was lost"

    def _records_lost(self) -> Iterator[str]:
        """What is done, and is not in the archive any more."""
        for outcome in self._log.outcomes:
            if outcome.fate in _FINAL and outcome.record in self._log.lost_records:
                yield f"{outcome.url} is {outcome.fate}, and a power cut took its record"

    def _found(self) -> Iterator[tuple[str, Candidate]]:
        """Yield what may be fetched of all that seeds, files, pages and redirects led to."""
        seeds = self._admission.select(self._run.web.seeds, None, 0).candidates
        if self._log.crashes:  # a start may have come when some were refused
            seeds = self._kept(self._run.web.seeds)
        yield from (("a seed", each) for each in seeds)
        sources: dict[str, str] = {}  # of URLs
        for file in self._log.hits:
            if file.content.sitemaps and not (failed(file) or self._may_be_undone(file)):
                sources.update(dict.fromkeys(file.content.sitemaps, file.url))
        last = {each.url: each for each in self._log.outcomes}  # earlier ones were undone
        for outcome in last.values():
            if outcome.fate == "moved":
                sources[outcome.target] = outcome.url
            elif outcome.fate == "done" and outcome.status == 200 and not outcome.reason:
                hit = self._last_hit(outcome)
                if hit is not None and not hit.error:
                    sources.update(dict.fromkeys(hit.content.links, outcome.url))
        yield from ((sources[each.url], each) for each in self._kept(list(sources)))

    def _kept(self, urls: Sequence[str]) -> list[Candidate]:
        """Return what of *urls* is admitted. What the operator refuses when it is found is not
        kept."""
        return [
            each
            for each in self._admission.select(urls, None, 1).candidates
            if not any(one.rules.of_url(each.url).refuse for one in self._log.rules_changes)
        ]

    def _last_hit(self, outcome: Outcome) -> Hit | None:
        hits = [each for each in self._hits[outcome.url] if each.end <= outcome.at + PRECISION_S]
        return hits[-1] if hits else None

    def _fetched_twice(self) -> Iterator[str]:
        for url, hits in self._hits.items():
            if is_robots(url):
                continue
            rounds = 0
            for first, second in pairwise(hits):
                if self._may_follow(first, second):
                    continue
                rounds += self._is_redirect_loop(url)
                if not 0 < rounds < _VISITS:
                    yield f"{url} was fetched at {first.start:.3f} and again at {second.start:.3f}"

    def _may_follow(self, first: Hit, second: Hit) -> bool:
        """Return whether the URL of *first* may be fetched again at *second*."""
        if failed(first) or first.is_cut or "not found" in first.content.text:
            return True
        if any(
            url == first.url and first.end <= at <= second.start
            for at, url in self._log.callback_errors
        ):
            return True
        return self._was_undone(first, second.start)

    def _was_undone(self, hit: Hit, until: float) -> bool:
        """Return whether a crash or loss *until* then came before the outcome of *hit* was safe."""
        if hit.is_doubtful:
            return True
        losses = self._log.losses or [Loss(at, at, 0) for at in self._log.crashes]
        return any(
            each.process in (0, hit.process)
            and hit.end <= each.at <= until
            and not any(hit.end <= one.at < each.since for one in self._outcomes[hit.url])
            for each in losses
        )

    def _is_redirect_loop(self, url: str) -> bool:
        """Return whether redirects lead from *url* back to it."""
        at = url
        for _ in range(_VISITS * 4):
            at = self._run.web.content(at, 0.0).location
            if at in ("", url):
                return at == url
        return False

    def _tried_too_often(self) -> Iterator[str]:
        """A page that always fails is tried `retries` times again, whatever becomes of others. Its
        host answers other pages, so the failures are the page's own."""
        most = self._run.policy.config.politeness.retries + 1
        for url, hits in self._hits.items():
            if "/error/" not in url:
                continue
            answered_at = min(
                (
                    each.end
                    for each in self._of_host[hits[0].host]
                    if not failed(each) and not self._may_be_undone(each)
                ),
                default=float("inf"),
            )
            tries = [
                each
                for each in hits
                if each.status == 500 and each.start > answered_at
                if not each.is_cut and not self._was_undone(each, self._log.ended_at)
            ]
            if len(tries) > most:
                yield f"{url} was tried {len(tries)} times, not {most}"

    def _may_be_undone(self, hit: Hit) -> bool:
        """Return whether a crash may have undone what was counted for *hit*."""
        return hit.is_cut or self._log.may_be_lost(hit)

    def _given_up_wrongly(self) -> Iterator[str]:
        for outcome in self._log.outcomes:
            if outcome.fate != "dead":
                continue
            failed_host = outcome.host
            if outcome.reason.startswith(f"{UNREACHABLE}its host has never answered"):
                failed_host = self._run.web.sites[failed_host].robots_host or failed_host
            hits = [
                hit for hit in self._of_host[failed_host] if hit.end <= outcome.at + PRECISION_S
            ]
            has_answered = [not failed(hit) and not self._may_be_undone(hit) for hit in hits]
            if outcome.reason.startswith(LEFT):
                pages = [
                    at
                    for at, (hit, is_known) in enumerate(zip(hits, has_answered, strict=True))
                    if is_known and hit.status == 200 and not is_robots(hit.url)
                ]
                row = hits[pages[-1] + 1 :] if pages else hits
                is_wrong = sum(hit.is_challenge for hit in row) < _IN_A_ROW + _PROBES
            elif "has failed for hours" in outcome.reason:
                most = self._run.policy.config.politeness.pause_after_failures
                is_wrong = any(has_answered[-most:])
            else:
                is_wrong = "has never answered" in outcome.reason and any(has_answered)
            if is_wrong:
                yield f"{outcome.url} was given up: {outcome.reason}; its host had answered"

    def _too_late(self) -> Iterator[str]:
        """A host that has answered well, and has URLs waiting, is not left alone for long."""
        if self._run.world.machine.concurrency < len(self._run.web.sites):
            return
        rules, known = self._run.policy.config.politeness, self._known_since()
        if rules.host_unit is HostUnit.ADDRESS:
            return  # it may have waited for others of its address, which rest for any time
        if self._run.world.machine.frontier.rounds is not None:
            return  # or for the others of its round
        changes = (each.at for each in self._log.rules_changes)
        losses = (each.at for each in self._log.losses)
        stops = sorted([*self._log.crashes, *changes, *losses])
        for hits in self._of_host.values():
            for first, second in pairwise(hits):
                if (
                    failed(first)
                    or first.is_cut
                    or first.retry_after_s
                    or second is not self._hits[second.url][0]
                ):
                    continue
                if is_robots(first.url) or known.get(second.url, 1e12) > first.end - 60.0:
                    continue
                if bisect_left(stops, first.end - 4000.0) != bisect_left(stops, second.start):
                    continue
                site = self._run.web.sites[first.host]
                longest_s = max(
                    min(rules.delay_factor * (first.end - first.start + 1.0), rules.max_delay_s),
                    min(site.crawl_delay_s, rules.max_crawl_delay_s),
                    30.0,
                )
                wait_s = second.start - first.end - longest_s
                if wait_s > _LATE_S:
                    yield f"{second.url} was asked for {wait_s:.0f} s later than {first.url} allows"

    def _known_since(self) -> dict[str, float]:
        """Return since when each URL is known that a page links to."""
        known: dict[str, float] = {}
        for hit in self._log.hits:
            for url in hit.content.links:
                known.setdefault(url, hit.end)
        return known


class VisitJudge(OutcomeJudge):
    """Judges the visits of a crawl that visits pages again, and ends at a date."""

    def __init__(self, found: Run) -> None:
        super().__init__(found)
        self._modes = found.world.revisits
        per_day = found.world.machine.frontier.visits_per_day
        assert per_day is not None, "a world whose pages are visited again has a budget"
        self._per_day = per_day
        self._good = {url: self._good_hits(hits) for url, hits in self._hits.items()}

    def _good_hits(self, hits: list[Hit]) -> list[Hit]:
        return [each for each in hits if not failed(each) and not each.is_cut]

    def findings(self) -> Iterator[str]:
        if self._log.failure:
            yield f"the crawl was not over: {self._log.failure}"
            return
        yield from self._records_lost()
        yield from self._given_up_wrongly()
        yield from self._too_soon()
        yield from self._histories_wrong()
        yield from self._left_alone()
        yield from self._over_budget()

    def _mode(self, url: str) -> str:
        return self._modes.get(authority_of(url).partition("://")[2], "once")

    def _too_soon(self) -> Iterator[str]:
        for url, hits in self._hits.items():
            if is_robots(url) or self._is_redirect_loop(url):
                continue
            mode = self._mode(url)
            for first, second in pairwise(hits):
                least_s = _INTERVALS_S.get(mode, inf)
                if first.status != _OK:  # it is asked for a day later, and later
                    least_s = min(least_s, DAY_S)
                early_s = first.start + least_s - second.start
                if early_s > _WHOLE_S and not self._may_follow(first, second):
                    yield (
                        f"{url} ({mode}) was visited at {first.start:.3f} and too soon again,"
                        f" at {second.start:.3f}"
                    )

    def _pages(self) -> Iterator[tuple[str, list[Outcome]]]:
        """Yield the pages that are visited again, with the outcomes of their visits. What its
        robots.txt forbids some day is none, nor what is a copy, or no page; what the operator has
        refused may be forgotten."""
        for url, outcomes in self._outcomes.items():
            path = url[len(authority_of(url)) :]
            is_page = path == "/" or (path.startswith("/p/") and not path.startswith("/p/b"))
            visits = [each for each in outcomes if each.fate == "done" and each.status == _OK]
            is_page &= not any(each.rules.of_url(url).refuse for each in self._log.rules_changes)
            if is_page and visits and self._mode(url) != "once":
                yield url, visits

    def _histories_wrong(self) -> Iterator[str]:
        for url, visits in self._pages():
            history, hits = self._run.histories.get(url), len(self._good[url])
            fewest = sum(not self._may_be_uncounted(each) for each in visits)
            if history is None:
                if fewest:
                    yield f"{url}, which was visited {len(visits)} times, is not kept any more"
            elif not fewest <= history.visits <= min(hits, len(visits)):
                counted = f"{fewest} to {len(visits)}" if fewest < len(visits) else f"{fewest}"
                yield (
                    f"{url} was visited {hits} times, {counted} of them to the end, and its"
                    f" history says {history.visits}"
                )

    def _may_be_uncounted(self, visit: Outcome) -> bool:
        """Return whether its worker may have lost the lease of *visit*, or what it noted of it."""
        hit = self._last_hit(visit)
        return hit is not None and any(
            each.process in (0, hit.process) and hit.start <= each.at and each.since <= visit.at
            for each in self._log.losses
        )

    def _left_alone(self) -> Iterator[str]:
        """No page is left alone for longer than ten times what the budget needs for all of them,
        or than its interval; or than a day after a visit that failed."""
        pages = [url for url, _ in self._pages()]
        adaptive = sum(self._mode(url) == "adaptive" for url in pages)
        slack_s = self._run.world.slack_s + sum([each.down_s for each in self._run.world.crashes])
        for url in pages:
            longest_s = _INTERVALS_S[self._mode(url)]
            if self._mode(url) == "adaptive":
                longest_s = max(longest_s, 10.0 * DAY_S * adaptive / self._per_day)
            if self._outcomes[url][-1].fate != "done":
                longest_s = max(longest_s, DAY_S)
            last = self._hits[url][-1]
            alone_s = self._log.ended_at - last.start
            if alone_s > 1.1 * longest_s + slack_s:
                yield f"{url} ({self._mode(url)}) was left alone for {alone_s / 3600:.1f} hours"

    def _over_budget(self) -> Iterator[str]:
        visits = 0
        for url, _ in self._pages():
            if self._mode(url) == "adaptive":
                hits = self._hits[url]
                visits += sum(not self._may_follow(*pair) for pair in pairwise(hits))
        days = (self._log.ended_at - self._log.starts[0]) / DAY_S
        saved = len(self._log.starts) * max(1.0, self._per_day * 60.0 / DAY_S)
        if visits > 1.01 * self._per_day * days + saved + 1.0:
            yield f"{visits} visits were made in {days:.2f} days, at {self._per_day:g} a day"
