"""Crawls on a virtual clock: the small worlds of the tests, judged, or policies side by side.

python -m crawler.simulate --seeds 1000           judge so many small worlds
python -m crawler.simulate --seed 7               replay one, with its events
python -m crawler.simulate --shared --seeds 1000  the same of workers that own shards
python -m crawler.simulate --policies default,factor-5 --seeds 5
python -m crawler.simulate --paces                ways to pace requests, beside each other
python -m crawler.simulate --policies default --edges FILE   over a given graph
"""

from __future__ import annotations

import os
import sys
import traceback
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic

from crawler.simulate.judges import judge
from crawler.simulate.pace import CONTROLLERS, compare_paces
from crawler.simulate.policies import POLICIES, compare, policy_world
from crawler.simulate.run import SMALL, Run, run, small_world
from crawler.simulate.shared_run import SHARED, run_shared, shared_world
from crawler.simulate.web import read_edges

_MOST_SHOWN = 10  # findings of one seed
_CHUNK = 10  # seeds that a process takes at once
_PROGRESS = 500  # crawls between two lines of progress


def main() -> int:
    parser = ArgumentParser(
        prog="python -m crawler.simulate",
        description=__doc__,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, help="replay this small world, and print its events")
    parser.add_argument("--shared", action="store_true", help="crawls of several workers")
    parser.add_argument("--seeds", type=int, default=20, help="how many (%(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (%(default)s)")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="(%(default)s)")
    parser.add_argument("--policies", help=f"compare these: {', '.join(POLICIES)}")
    parser.add_argument(
        "--paces", action="store_true", help="compare ways to pace requests to one server, an hour"
    )
    parser.add_argument("--hosts", type=int, default=20, help="of a web (%(default)s)")
    parser.add_argument("--largest", type=int, default=400, help="pages of its largest host")
    parser.add_argument("--edges", type=Path, help="a graph: two URLs with a tab in each line")
    asked = parser.parse_args()
    if asked.paces:
        for line in compare_paces(list(CONTROLLERS)):
            print(line, flush=True)
        return 0
    if asked.policies:
        return _compare(asked)
    if asked.seed is not None:
        return _replay(asked.seed, shared=asked.shared)
    seeds = range(asked.first, asked.first + asked.seeds)
    return _judge_all(seeds, asked.processes, shared=asked.shared)


def _compare(asked: Namespace) -> int:
    unknown = set(asked.policies.split(",")) - POLICIES.keys()
    if unknown:
        print(f"no policy is called {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    edges = {}
    if asked.edges:
        with asked.edges.open() as lines:
            edges = read_edges(lines)
    worlds = (
        replace(policy_world(seed, asked.hosts, asked.largest), edges=edges)
        for seed in range(asked.first, asked.first + asked.seeds)
    )
    for line in compare([POLICIES[name] for name in asked.policies.split(",")], worlds):
        print(line, flush=True)
    return 0


def _run(seed: int, shared: bool, trace: Callable[[str], None] | None = None) -> Run:
    if shared:
        return run_shared(shared_world(seed), SHARED, trace)
    return run(small_world(seed), SMALL, trace)


def _replay(seed: int, *, shared: bool) -> int:
    found = _run(seed, shared, _print)
    findings = judge(found)
    for each in findings:
        print(f"WRONG: {each}")
    print(f"digest {found.log.digest}, {found.log.events} events, {len(found.log.hits)} requests")
    return bool(findings)


def _print(line: str) -> None:
    sys.stdout.write(line)


def _judge_all(seeds: range, processes: int, *, shared: bool) -> int:
    began, wrong = monotonic(), 0
    replay = f"python -m crawler.simulate {'--shared ' if shared else ''}--seed"
    with ProcessPoolExecutor(processes) as pool:
        judged = pool.map(partial(_findings, shared=shared), seeds, chunksize=_CHUNK)
        for number, (seed, findings) in enumerate(zip(seeds, judged, strict=True), 1):
            for each in findings[:_MOST_SHOWN]:
                print(each)
            if findings:
                wrong += 1
                print(f"{len(findings)} in all; replay: {replay} {seed}", flush=True)
            if number % _PROGRESS == 0:
                took_s = monotonic() - began
                progress = f"{number:,} of {len(seeds):,} crawls in {took_s:.0f} s, {wrong} wrong"
                print(progress, file=sys.stderr)
    print(f"{len(seeds):,} crawls, {f'{wrong:,} of them wrong' if wrong else 'nothing wrong'}")
    return wrong > 0


def _findings(seed: int, *, shared: bool) -> list[str]:
    try:
        return judge(_run(seed, shared))
    except Exception as bug:  # an invariant of the product, or the simulation itself
        at = traceback.extract_tb(bug.__traceback__)[-1]
        return [f"{type(bug).__name__}: {bug}, in {at.filename}:{at.lineno}"]


if __name__ == "__main__":
    sys.exit(main())
