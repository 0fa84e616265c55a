"""The floors of docs/architecture.md as a test: imports point down, and below it is pure."""

from __future__ import annotations

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.sources import Source, sources

SCHEDULER_EDGE = (
    "scheduler.scheduler scheduler.candidates scheduler.requests scheduler.wake scheduler.errands"
)

# Bottom first. What stands in one string is one house and may import itself; houses of one
# floor are neighbours and do not know each other.
FLOORS = [
    ["core"],
    ["policy"],
    ["scheduler"],
    # Both touch the world below us: disks and servers, and processes that read what may be hostile.
    ["storage", "parsers"],
    # What several edges share: the parts of a crawl, and what an error of Scrapy's means.
    [
        (
            "wiring parts components ground joining rules sharing doors feeding intake pushing"
            " archiving keeping group_commit body_memory columns_later columns_child parsing"
            " reparsing tally clock failures items errand"
        )
    ],
    ["spiders", "middlewares", "pipelines", "download", SCHEDULER_EDGE],
    ["ops"],
]
FREE = {"", "addon", "replaced", "settings"}  # they name things, and are imported by nobody
PURE_FLOORS = 3

# The standard library without clock, chance, disk, socket, process or thread.
PURE_STANDARD = {
    *(
        "__future__",
        "abc",
        "bisect",
        "calendar",
        "codecs",
        "collections",
        "csv",
        "contextlib",
        "dataclasses",
    ),
    *("difflib", "email.utils", "enum", "functools", "hashlib", "heapq", "html", "ipaddress"),
    *("itertools", "math", "operator", "random.Random", "re", "string", "struct", "types"),
    *("typing", "unicodedata", "urllib.parse", "weakref"),
    *("compression.zstd", "sys"),  # of sys the version: it says who has zstd
}
# Other people's pure functions (docs/decisions/0002).
PURE_LIBRARIES = {
    *("ada_url", "backports.zstd", "brotli", "isal.isal_zlib", "msgspec", "numpy"),
    *("chardetng_py", "protego", "publicsuffixlist", "selectolax", "w3lib", "webencodings"),
    "xxhash",
}
# Who else may know a library.
CONFINED = {
    "rocksdict": {"storage"},
    "redis": {"storage"},
    "aiohttp": {"download"},
    "aiodns": {"download"},
    "selectolax": {"policy", "parsers"},
    "pyarrow": {"storage"},
    "fsspec": {"storage"},
    "fcntl": {"storage"},
    "scrapy": {house for floor in FLOORS[4:] for house in floor},
    "twisted": {house for floor in FLOORS[5:] for house in floor},
}

HOUSES = {
    name: (house, number)
    for number, floor in enumerate(FLOORS)
    for house in floor
    for name in house.split()
}


def house_of(module: str) -> tuple[str, int] | None:
    """The house and floor of a module of ours: of the longest name that fits."""
    inner = module.removeprefix("crawler").removeprefix(".")
    fitting = [name for name in HOUSES if f"{inner}.".startswith(f"{name}.")]
    return HOUSES[max(fitting, key=len)] if fitting else None


def breaches(source: Source) -> Iterator[str]:
    here = house_of(source.name)
    for name in source.imports():
        top = name.partition(".")[0]
        if top == "crawler":
            yield from upward(source.name, here, name)
        elif here and here[1] < PURE_FLOORS and not is_pure(name):
            yield f"{source.name}: {name} on a pure floor"
        if here and top in CONFINED and here[0] not in CONFINED[top]:
            yield f"{source.name}: {top} belongs into {sorted(CONFINED[top])}"


def upward(module: str, here: tuple[str, int] | None, name: str) -> Iterator[str]:
    there = house_of(name)
    if there is None:
        if here is not None:
            yield f"{module} may not import {name}: it has no floor"
    elif here and there[0] != here[0] and there[1] >= here[1]:
        yield f"{module} ({here[0]}) may not import {name} ({there[0]})"


def is_pure(name: str) -> bool:
    return any(f"{name}.".startswith(f"{pure}.") for pure in PURE_STANDARD | PURE_LIBRARIES)


OURS = sources("crawler")


@pytest.mark.parametrize("source", OURS, ids=lambda source: source.name)
def test_imports_point_down(source: Source) -> None:
    assert list(breaches(source)) == []


@pytest.mark.parametrize("source", OURS, ids=lambda source: source.name)
def test_every_file_has_a_floor(source: Source) -> None:
    inner = source.name.removeprefix("crawler").removeprefix(".")
    assert inner in FREE or house_of(source.name), f"{source.name}: on which floor is it?"


def test_packages_are_empty() -> None:
    """Import cycles come from packages that re-export."""
    assert [one.name for one in OURS if one.path.stem == "__init__" and one.text.strip()] == []


def test_there_is_no_import_cycle() -> None:
    names = {source.name for source in OURS}
    graph = {
        source.name: {
            next(part for part in (name, name.rpartition(".")[0]) if part in names)
            for name in source.imports()
            if {name, name.rpartition(".")[0]} & names
        }
        for source in OURS
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as cycle:
        pytest.fail(" -> ".join(cycle.args[1]))


@pytest.mark.parametrize(
    ("module", "imported", "breach"),
    [
        pytest.param("core.url", "crawler.policy.scope", "may not import", id="upwards"),
        pytest.param("policy.scope", "time", "pure floor", id="a clock in a policy"),
        pytest.param("policy.retry", "random.random", "pure floor", id="chance of its own"),
        pytest.param("scheduler.gate", "scrapy", "pure floor", id="Scrapy in the pure part"),
        pytest.param("storage.memory", "scrapy", "belongs into", id="Scrapy in a store"),
        pytest.param("download.wire", "crawler.spiders.web", "may not import", id="a neighbour"),
        pytest.param("middlewares.robots", "redis", "belongs into", id="Redis at the edge"),
        pytest.param("policy.retry", "random.Random", "", id="chance as an argument is fine"),
        pytest.param("ops.report", "crawler.parts.Parts", "", id="downwards is fine"),
        pytest.param("scheduler.scheduler", "scrapy", "", id="the edge may know Scrapy"),
    ],
)
def test_this_test_would_notice(module: str, imported: str, breach: str) -> None:
    class Fake(Source):
        name = f"crawler.{module}"

        def imports(self) -> Iterator[str]:
            yield imported

    found = list(breaches(Fake(OURS[0].path)))
    assert any(breach in one for one in found) if breach else not found
