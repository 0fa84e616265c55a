"""One simulated crawl, from its seed: its web, its machine, its operator, its crashes, and the run.

Rule: all comes from the seed and the policy, so a failure is a seed to replay.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from random import Random
from typing import Final

from crawler.config.settings import (
    Config,
    IdentitySettings,
    PatternSettings,
    PolitenessSettings,
)
from crawler.frontier.open import frontier_limits
from crawler.frontier.reader import FrontierReader
from crawler.model.choices import HostUnit
from crawler.model.types import DataDirError, PageHistory
from crawler.policy.admission import Admission
from crawler.policy.budgets import BudgetRules
from crawler.policy.operator_rules import read_rules
from crawler.policy.rounds import RoundCaps
from crawler.simulate.disk import Disk
from crawler.simulate.process import Machine, Policy, Process, ProcessKilled
from crawler.simulate.run_log import RulesChange, RunLog
from crawler.simulate.servers import ServerParameters, Servers
from crawler.simulate.web import DAY_S, START, Web, WebParameters

CONFIG: Final = Config(identity=IdentitySettings(contact="https://simulated.example/"))
DEFAULT: Final = Policy(config=CONFIG)


@dataclass(frozen=True, slots=True)
class Crash:
    """The crash of a process after so many of its steps, or *at* a time; the next one starts so
    much later."""

    steps: int  # 0: at a time
    down_s: float
    is_power_cut: bool = False
    at: float = inf
    visits_per_day: float | None = None  # the budget of the next one; None: as before


@dataclass(frozen=True, slots=True)
class OperatorAct:
    """The rules, as text, that an operator writes at a time."""

    at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """All of a simulation but its policy."""

    seed: int
    web: WebParameters = field(default_factory=WebParameters)
    servers: ServerParameters = field(default_factory=ServerParameters)
    machine: Machine = field(default_factory=Machine)
    acts: tuple[OperatorAct, ...] = ()
    crashes: tuple[Crash, ...] = ()
    edges: dict[str, tuple[str, ...]] = field(default_factory=dict)
    changes_a_day: dict[str, float] = field(default_factory=dict)  # of pages, by URL
    seeds: tuple[str, ...] = ()  # in place of the web's own
    until: float | None = None  # a date, where pages are visited again; None: it ends by itself
    revisits: dict[str, str] = field(default_factory=dict)  # what its rules say of this, by host
    slack_s: float = 1.5 * DAY_S  # beyond the longest time between visits: troubles, pauses, rests
    longest_s: float = 60 * DAY_S  # a crawl that is not over then is at fault
    most_events: int = 1 << 60


@dataclass(slots=True, eq=False)
class Run:
    """A crawl that has ended: what judges read."""

    world: World
    policy: Policy
    web: Web
    servers: Servers
    log: RunLog
    admission: Admission  # which URLs it may fetch
    left: int  # URLs that are not finished
    histories: dict[str, PageHistory] = field(default_factory=dict)  # of pages visited again


def run(world: World, policy: Policy = DEFAULT, trace: Callable[[str], None] | None = None) -> Run:
    """Run a crawl of *world* by *policy* to its end. *trace* is called with each event."""
    web = Web(world.seed, world.web, world.edges, world.changes_a_day)
    servers = Servers(world.seed, web, world.servers)
    log = RunLog(trace=trace, most_events=world.most_events)
    levels = len(policy.config.frontier.level_shares)
    log.rules_changes.append(RulesChange(START, read_rules("", levels), ""))
    now, acts, crashes, machine = START, list(world.acts), list(world.crashes), world.machine
    random = Random(world.seed)  # of what power cuts take
    with tempfile.TemporaryDirectory(prefix="simulate-") as folder:
        may_lose = any(crash.is_power_cut for crash in crashes)
        disk = Disk(Path(folder), world.seed, log, may_lose=may_lose)
        while True:
            while acts and acts[0].at <= now:  # written while no process ran
                _write(acts.pop(0), disk, log, levels)
            log.starts.append(now)
            log.note(now, "start")
            try:
                process = Process(
                    disk,
                    policy,
                    machine,
                    servers,
                    log,
                    seeds=world.seeds or web.seeds,
                    now=now,
                    random=Random(world.seed * 1000 + len(log.starts)),
                    steps=crashes[0].steps if crashes else 0,
                )
                killed_at = crashes[0].at if crashes else inf
                _run_process(process, world, acts, log, levels, disk, killed_at)
                break
            except ProcessKilled as killed:
                log.note_crash(killed.at, len(log.starts))
                crash = crashes.pop(0)
                if crash.visits_per_day is not None:
                    limits = replace(machine.frontier, visits_per_day=crash.visits_per_day)
                    machine = replace(machine, frontier=limits)
                if crash.is_power_cut:
                    disk.cut_power(killed.at, random)
                now = killed.at + crash.down_s
            except DataDirError as error:
                log.failure = f"it cannot be opened again: {error}"
                break
        left = process.local_frontier.counts().left
        process.local_frontier.close()
        held = FrontierReader(disk.store, disk.runs).held()
        histories = {each.url: each.history for each in held if each.history is not None}
    log.ended_at = process.now
    log.note(process.now, f"end {log.is_over} {log.failure}")
    return Run(world, policy, web, servers, log, process.origins.admission, left, histories)


def _run_process(
    process: Process,
    world: World,
    acts: list[OperatorAct],
    log: RunLog,
    levels: int,
    disk: Disk,
    killed_at: float,
) -> None:
    """Run *process* until nothing is left, or the crawl's last date. Raises ProcessKilled."""
    while True:
        at = process.next_at
        if killed_at < (inf if at is None else at):
            raise ProcessKilled(killed_at)
        if acts and (at is None or acts[0].at <= at):
            act = acts.pop(0)
            _write(act, disk, log, levels)
            process.put_in_force(act.text, act.at)
            continue
        is_end = world.until is not None and (at is None or at > world.until)
        if is_end or (process.is_over and not acts):
            log.is_over = not is_end
            return
        if at is None:
            log.failure = "nothing will happen any more, and URLs are left"
        elif world.until is None and at > START + world.longest_s:
            log.failure = f"not over after {world.longest_s / DAY_S:g} days"
        elif log.is_endless:
            log.failure = f"not over after {world.most_events:,} events"
        if log.failure:
            return
        process.advance()


def _write(act: OperatorAct, disk: Disk, log: RunLog, levels: int) -> None:
    disk.write_rules(act.text)
    log.rules_changes.append(RulesChange(act.at, read_rules(act.text, levels), act.text))
    log.note(act.at, f"rules {act.text!r}")


# The worlds of `make test`: small, but with all that may happen in large ones.


_FAST: Final = 7  # the last digit of their seeds
IN_ROUNDS: Final = 8
"""The last digit of the seeds of those that are crawled in rounds."""
VISITED_AGAIN: Final = 4
"""The last digit of the seeds of those whose pages are visited again."""


def small_world(seed: int) -> World:
    """Return a small world: its limits are tight, so that hosts are evicted, queues have many
    chunks and the seen set many runs; its crawls may last for days."""
    random = Random(seed)
    kind = random.choice(("plain", "plain", "long", "many hosts", "troubled"))
    if seed % 10 == _FAST:
        kind = "fast"
    hosts, largest = random.randint(2, 7), random.choice((10, 25, 60))
    delays: tuple[int, ...] = (0, 0, 2, 20)
    servers = ServerParameters()
    if kind == "long":  # the largest host takes more than a day
        hosts, largest, delays = random.randint(2, 3), 40, (0, 2400)
    elif kind == "many hosts":
        hosts, largest = 26, 4
        servers = replace(servers, dead=0.05, troubles=0.5, cut_offs=1)
    elif kind == "troubled":
        servers = replace(servers, troubles=5.0, broken_off=0.1, limited=0.6)
    elif kind == "fast":  # hosts that may be asked for several URLs at once
        hosts, largest, delays = 2, 400, (0,)
        servers = replace(servers, workers=(16,), troubles=4.0, limited=0.0, dead=0.0)
    web = WebParameters(hosts=hosts, largest=largest, crawl_delays=delays)
    config = CONFIG
    frontier = replace(
        frontier_limits(config),
        rounds=_round_caps(seed) if seed % 10 == IN_ROUNDS else None,
        max_active_hosts=3,
        head_urls=4,
        chunk_urls=4,
        evict_rest_s=random.choice((2.0, 5.0, 60.0)),
        max_front_reads=4,
        due_slice=4,
        judged_slice=8,
        max_arrived=20,
        max_new_keys=random.choice((30, 60, 1 << 16)),
        max_undecided=10,
        max_undecided_s=10.0,
        recovered_slice=2,
        budgets=FEW_AT_ONCE if seed % 10 == OVER_BUDGETS else None,
    )
    machine = Machine(
        concurrency=random.choice((2, 8)),
        frontier=frontier,
        callback_errors=random.choice((0.0, 0.02)),
    )
    crashes = tuple(
        Crash(
            1 + int(random.expovariate(1 / random.choice((300, 300, 5)))),  # 5: while it opens
            random.choice((0.0, 1.0, 10.0, 5000.0, 1e5)),
            is_power_cut=random.random() < 0.3,
        )
        for _ in range(random.choice((0, 1, 3, 8)))
    )
    if frontier.rounds is not None:  # a power cut takes what was counted in the last moment
        crashes = tuple([replace(each, is_power_cut=False) for each in crashes])
    acts = _acts(random, [f"h{n}.test" for n in range(hosts)], at_once=3 * (kind == "fast"))
    if seed % 10 == VISITED_AGAIN:
        return _visited_again(
            World(
                seed=seed,
                web=replace(web, hosts=min(hosts, 5), largest=10),
                servers=replace(servers, troubles=min(servers.troubles, 2.0)),
                machine=machine,
                acts=acts,
                crashes=crashes,
                most_events=60_000,
            )
        )
    if seed % 10 == 2:  # the others stay what they were before there were guards
        servers = replace(servers, guarded=0.5)
    return World(
        seed=seed,
        web=web,
        servers=servers,
        machine=machine,
        acts=acts,
        crashes=crashes,
        most_events=20_000,
    )


def _round_caps(seed: int) -> RoundCaps:
    random = Random(f"rounds of {seed}")  # what else is drawn of the seed stays as it is
    urls, per_host = random.choice((None, 3, 20)), random.choice((None, 1, 4))
    per_domain, seconds = random.choice((None, 2, 6)), random.choice((None, None, 30.0, 2000.0))
    if urls is per_host is per_domain is seconds is None:
        per_host = 2
    return RoundCaps(
        urls=urls,
        per_host=per_host,
        per_domain=per_domain,
        seconds=seconds,
        rounds=1_000_000,
    )


def _visited_again(world: World) -> World:
    """Return *world* with hosts whose pages are visited once, each so often, or when that is worth
    it; with a budget of a visit of each page in hours, in days, or so large that only the least
    time between two visits counts. It is killed early and late."""
    random = Random(world.seed)
    hosts = [f"h{n}.test" for n in range(world.web.hosts)]
    per_day, days = random.choice(((20.0, 12.0), (300.0, 6.0), (20_000.0, 0.2)))
    modes = ["adaptive", "adaptive", "adaptive", "every 12h", "every 2d", "once"]
    revisits = {host: random.choice(modes) for host in hosts}
    rules = revisit_rules(revisits)
    acts = [replace(each, text=each.text + rules) for each in world.acts]
    if not acts or acts[0].at > START:
        acts.insert(0, OperatorAct(START, rules))
    crashes = [
        replace(each, down_s=min(each.down_s, 5000.0), steps=each.steps * random.choice((1, 10)))
        for each in world.crashes
    ]
    limits = replace(world.machine.frontier, visits_per_day=per_day)
    return replace(
        world,
        acts=tuple(acts),
        crashes=tuple(crashes),
        machine=replace(world.machine, frontier=limits),
        until=START + days * DAY_S,
        revisits=revisits,
    )


OVER_BUDGETS: Final = 6
"""Seeds that end so have domains with more links than budgets allow."""
FEW_AT_ONCE: Final = BudgetRules(
    least=2, most=5, ranked=3, round_s=30.0, kept_rounds=10_000, hosts_per_url=1
)


def revisit_rules(revisits: Mapping[str, str]) -> str:
    """Return the rules that say when the pages of each host are visited again."""
    return "".join(
        [f'[[rule]]\nfor = "{host}"\nrevisit = "{mode}"\n' for host, mode in revisits.items()]
    )


SMALL: Final = Policy(
    config=replace(
        CONFIG,
        politeness=PolitenessSettings(callback_retries=2),
        patterns=PatternSettings(pattern_max_pages=25, pattern_barren_pages=8),
    )
)
"""The policy of `make test`: the defaults, with patterns that stop in small webs, too."""


SHARED_ADDRESSES: Final = replace(
    SMALL,
    config=replace(
        SMALL.config,
        politeness=replace(
            SMALL.config.politeness, host_unit=HostUnit.ADDRESS, address_wait_s=60 * DAY_S
        ),
    ),
)
"""The same where hosts of one address take turns, however long each waits."""


def _acts(random: Random, hosts: list[str], at_once: int) -> tuple[OperatorAct, ...]:
    """Return what an operator does: pauses and delays of hosts, refusals, a pause of all; at the
    end all of it is undone, so that the crawl can be over. *at_once*: URLs that all hosts may be
    asked for until the first of these; 0: one."""
    allowed = "".join([f'[[rule]]\nfor = "{host}"\nconnections = {at_once}\n' for host in hosts])
    first = (OperatorAct(START, allowed),) if at_once else ()
    if random.random() < 0.4:
        return first
    acts, at = list(first), START
    if at_once:
        at += random.uniform(30.0, 200.0)
    for _ in range(random.randint(1, 4)):
        at += random.uniform(0.5, 10.0) ** random.choice((1, 2, 3))
        host = random.choice(hosts)
        until = datetime.fromtimestamp(int(at + random.uniform(10.0, 4000.0)), UTC)
        says = random.choice(
            (
                "paused = true",
                f"paused = {until:%Y-%m-%dT%H:%M:%SZ}",
                "refuse = true",
                "delay_s = 7",
            )
        )
        text = f'[[rule]]\nfor = "{host}"\n{says}\n'
        if random.random() < 0.15:
            text = f"paused = {until:%Y-%m-%dT%H:%M:%SZ}\n"
        acts.append(OperatorAct(at, text))
    at += random.uniform(10.0, 8000.0)
    return (*acts, OperatorAct(at, ""))
