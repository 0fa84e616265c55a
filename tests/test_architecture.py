"""The layers of docs/architecture.md as a test: imports point down, and layers 0 to 5 are pure."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pkgutil import resolve_name

import pytest

from tests.harness.sources import PROJECT, Source, sources

# Bottom first. Folders of one layer do not import each other.
LAYERS = [
    ["model"],
    ["config"],
    ["page"],
    ["policy"],
    ["frontier"],
    ["loop"],
    ["data"],
    ["engine"],
    ["archive", "duplicates", "render"],
    ["content"],
    ["shared"],
    ["urlfrontier"],
    ["assembly", "simulate"],
    ["view"],
    ["operate"],
    ["scheduler", "download", "middlewares", "pipelines", "spiders"],
    ["report"],
    ["workers"],
    ["console"],
    ["cli"],
    ["commands"],
]
# Strings of that form that name no module: the entry points of parsers, and names that are refused.
NOT_MODULES = {
    "crawler.parsers",
    "crawler.core.parsed.Parser",
}
FREE = {"", "addon", "api", "settings"}  # they name components, and no module imports them
PURE_LAYERS = 6
# In the pure folder of the frontier, what keeps it on a disk.
IMPURE = {
    "frontier.rocks_store",
    "frontier.run_files",
    "frontier.drum",
    "frontier.gate",
    "frontier.seen_repair",
    "frontier.open",
}

# The standard library without clock, chance, disk, socket, process or thread.
PURE_STANDARD = {
    *(
        "__future__",
        "abc",
        "array",
        "bisect",
        "calendar",
        "codecs",
        "collections",
        "csv",
        "contextlib",
        "dataclasses",
    ),
    *(
        "difflib",
        "email.utils",
        "enum",
        "errno",
        "functools",
        "hashlib",
        "heapq",
        "html",
        "ipaddress",
    ),
    *("itertools", "math", "operator", "random.Random", "re", "shlex", "string", "struct", "types"),
    *("typing", "unicodedata", "urllib.parse", "weakref"),
    *("datetime", "tomllib"),  # of the first the type of a time in TOML
    *("compression.zstd", "sys"),  # of sys the version: it says who has zstd
}
# Other people's pure functions (docs/decisions/0002).
PURE_LIBRARIES = {
    *("ada_url", "backports.zstd", "brotli", "isal.isal_zlib", "msgspec", "numba", "numpy"),
    *("chardetng_py", "publicsuffixlist", "w3lib", "webencodings"),
    *("http_sf", "pycld2", "xxhash"),
}
# Who else may know a library.
CONFINED = {
    "rocksdict": {"frontier", "data"},
    "hiredis": {"shared"},
    "aiohttp": {"operate", "console"},
    "aiohappyeyeballs": {"download"},
    "prometheus_client": {"operate", "urlfrontier"},
    "grpc": {"urlfrontier"},
    "google": {"urlfrontier"},
    "aiodns": {"download"},
    "pyarrow": {"archive"},
    "duckdb": {"archive"},
    "fsspec": {"archive"},
    "playwright": {"render"},
    "fcntl": {"operate", "content", "data", "archive", "shared", "workers", "render"},
    "scrapy": {folder for layer in LAYERS[6:] for folder in layer}
    - {"archive", "data", "duplicates", "simulate"},
    # engine: its exceptions are Twisted's, too, for users' errbacks.
    "twisted": {folder for layer in LAYERS[12:] for folder in layer} | {"engine"},
}

LAYER_OF = {folder: number for number, layer in enumerate(LAYERS) for folder in layer}


def layer_of(module: str) -> tuple[str, int] | None:
    """The folder and layer of a module of ours. None: it stands outside."""
    folder = module.removeprefix("crawler").removeprefix(".").partition(".")[0]
    return (folder, LAYER_OF[folder]) if folder in LAYER_OF else None


def breaches(source: Source) -> Iterator[str]:
    here = layer_of(source.name)
    is_impure = source.name.removeprefix("crawler.") in IMPURE
    for name in source.imports():
        top = name.partition(".")[0]
        if top == "crawler":
            yield from upward(source.name, here, name)
        elif here and here[1] < PURE_LAYERS and not is_impure and not is_pure(name):
            yield f"{source.name}: {name} on a pure layer"
        if here and top in CONFINED and here[0] not in CONFINED[top]:
            yield f"{source.name}: {top} belongs into {sorted(CONFINED[top])}"


def upward(module: str, here: tuple[str, int] | None, name: str) -> Iterator[str]:
    there = layer_of(name)
    if there is None:
        if here is not None:
            yield f"{module} may not import {name}: it has no layer"
    elif here and there[0] != here[0] and there[1] >= here[1]:
        yield f"{module} ({here[0]}) may not import {name} ({there[0]})"


def is_pure(name: str) -> bool:
    return any(f"{name}.".startswith(f"{pure}.") for pure in PURE_STANDARD | PURE_LIBRARIES)


OURS = sources("crawler")


@pytest.mark.parametrize("source", OURS, ids=lambda source: source.name)
def test_imports_point_down(source: Source) -> None:
    assert list(breaches(source)) == []


@pytest.mark.parametrize("source", OURS, ids=lambda source: source.name)
def test_every_file_has_a_layer(source: Source) -> None:
    inner = source.name.removeprefix("crawler").removeprefix(".")
    assert inner in FREE or layer_of(source.name), f"{source.name}: on which layer is it?"


@pytest.mark.parametrize("source", sources("tests"), ids=lambda source: source.name)
def test_no_file_imports_from_a_test(source: Source) -> None:
    """What tests share is in tests/harness and tests/servers."""
    folders = (
        "tests.contract.",
        "tests.integration.",
        "tests.unit.",
        "tests.test_",
        "tests.conftest.",
    )
    own = f"{source.name}."
    assert [
        name for name in source.imports() if name.startswith(folders) and not name.startswith(own)
    ] == []


def test_packages_are_empty() -> None:
    """Import cycles come from packages that re-export."""
    assert [one.name for one in OURS if one.path.stem == "__init__" and one.text.strip()] == []


@pytest.mark.parametrize(
    "source", sources("crawler", "tests", "bench", "demo"), ids=lambda s: s.name
)
def test_names_in_strings_exist(source: Source) -> None:
    """Scrapy's component tables and `-m` of a process name modules and classes in strings."""
    named = re.compile(r"crawler(\.\w+)+")
    for node in ast.walk(source.tree):
        name = node.value if isinstance(node, ast.Constant) else None
        if isinstance(name, str) and named.fullmatch(name) and name not in NOT_MODULES:
            resolve_name(name)


def test_no_class_name_is_used_twice() -> None:
    found = [
        (node.name, source.name)
        for source in OURS
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ClassDef)
    ]
    counts = Counter(name for name, _ in found)
    assert [each for each in found if counts[each[0]] > 1] == []


def test_every_requirement_is_imported() -> None:
    """Or named in a setting, for Scrapy to import."""
    lines = (PROJECT / "requirements.txt").read_text().splitlines()
    asked = {
        re.split(r"[<>=\[; ]", line)[0].replace("-", "_")
        for line in lines
        if line and not line.startswith("#")
    }
    imported = {f"{name}." for source in OURS for name in source.imports()}
    assert {
        name
        for name in asked
        if not any(one.startswith(f"{name}.") for one in imported)
        and not any(f'"{name}.' in source.text for source in OURS)
    } == set()


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


# Nothing is set on an object after its construction: what it needs its constructor takes, without
# a default that does nothing. Else a connection that is forgotten is missed without an error.

# Objects that are not ours, or not made by us, by the module that sets something on them.
SET_FROM_OUTSIDE = {
    "archive.delivery_stores": {"self._fs"},  # fsspec's file system has no argument for it
    "archive.wacz": {"info"},  # zipfile's
    "cli.crawl": {"opts"},  # argparse's
    "content.feed_export": {"ItemAdapter"},  # itemadapter's list of what it can read
    "content.parsers.sitemap": {"self._xml"},  # expat takes its handlers so
    "content.rsl": {"self.xml"},
    "report.messages": {"sys"},  # an output that is closed
    "engine.lifecycle": {"self._slot"},  # Scrapy's: its only hooks (decision 6)
    "download.handler": {"response", "stop"},  # Scrapy's
    "download.connection": {"context"},  # ssl's
    "download.engine_tasks": {
        "self._engine",
        "self._pipelines",
        "self._scraper",
        "response",
    },  # Scrapy's (decision 47)
    "frontier.records": {"self"},  # the totals count by the names of their fields
    "frontier.reader": {"totals"},  # a record, by the names of its fields
    "model.compiled": {"dispatcher", "arrayobj"},  # numba's (decision 45)
    "report.logs": {"handler"},  # logging's, made by Scrapy
    "shared.address": {"context"},  # ssl's
    "urlfrontier.client": {"info", "item", "message", "params"},  # protobuf's, which are built so
    "spiders.web": {"spider"},  # in its `from_crawler`: Scrapy makes it before it has a crawler
}


@pytest.fixture(scope="module")
def records() -> set[str]:
    """Fields of our dataclasses and structs that may change: plain data, so no callbacks."""
    return {
        field.target.id
        for source in OURS
        for made in ast.walk(source.tree)
        if isinstance(made, ast.ClassDef) and is_record(made)
        for field in made.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if "Callable" not in ast.unparse(field.annotation)
    }


def is_record(made: ast.ClassDef) -> bool:
    texts = [ast.unparse(each) for each in (*made.decorator_list, *made.bases, *made.keywords)]
    is_plain = any(each.startswith("dataclass") or each.endswith("Struct") for each in texts)
    return is_plain and not any("frozen=True" in each for each in texts)


def set_from_outside(tree: ast.AST, fields: set[str]) -> Iterator[tuple[str, str]]:
    """The object and the attribute, where one sets what another has and is no record."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if ast.unparse(node.value) not in ("self", "cls") and node.attr not in fields:
                yield ast.unparse(node.value), node.attr
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr":
            yield ast.unparse(node.args[0]), ast.unparse(node.args[1])


def do_nothing(tree: ast.AST) -> Iterator[str]:
    """Callbacks with a default: of a parameter, a field, or an attribute set by a constructor."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arguments):
            defaults = [*node.defaults, *filter(None, node.kw_defaults)]
        elif isinstance(node, ast.AnnAssign) and "Callable" in ast.unparse(node.annotation):
            defaults = [node.value] if node.value is not None else []
        else:
            continue
        yield from (ast.unparse(each) for each in defaults if isinstance(each, ast.Lambda))


@pytest.mark.parametrize("source", OURS, ids=lambda source: source.name)
def test_nothing_is_set_on_an_object_after_its_construction(
    source: Source, records: set[str]
) -> None:
    inner = source.name.removeprefix("crawler.")
    allowed = SET_FROM_OUTSIDE.get(inner, set())
    found = [
        f"{target}.{name}"
        for target, name in set_from_outside(source.tree, records)
        if target not in allowed
    ]
    assert found == [], "its constructor should take it"
    assert list(do_nothing(source.tree)) == [], "a forgotten one is missed"


@pytest.mark.parametrize(
    ("code", "found"),
    [
        pytest.param("listener.count = stats.count", "listener", id="a callback of another"),
        pytest.param("self.incoming.room = slots.room", "self.incoming", id="of a part of ours"),
        pytest.param("one.seen, two.tell = 1, tell", "two", id="among others"),
        pytest.param("setattr(frontier, 'on_due', wake)", "frontier", id="by its name"),
        pytest.param("self.room = room", "", id="of its own"),
        pytest.param("flight.seen = True", "", id="a record is filled"),
    ],
)
def test_attributes_set_from_outside_are_found(code: str, found: str) -> None:
    assert "".join(each for each, _ in set_from_outside(ast.parse(code), {"seen"})) == found


@pytest.mark.parametrize(
    ("code", "found"),
    [
        pytest.param("self.f: Callable[[], None] = lambda: None", True, id="in a constructor"),
        pytest.param("def f(g=lambda _: None): ...", True, id="of a parameter"),
        pytest.param("def f(*, g=lambda _: None): ...", True, id="of one that is named"),
        pytest.param("def f(g=None): ...", False, id="None is said by its caller's reader"),
        pytest.param("key = lambda it: it.at", False, id="a function that is used"),
    ],
)
def test_callbacks_that_do_nothing_are_found(code: str, found: bool) -> None:
    assert bool(list(do_nothing(ast.parse(code)))) is found


@pytest.mark.parametrize(
    ("module", "imported", "breach"),
    [
        pytest.param("model.url", "crawler.policy.scope", "may not import", id="upwards"),
        pytest.param("policy.scope", "time", "pure layer", id="a clock in a policy"),
        pytest.param("policy.robots", "random.random", "pure layer", id="chance of its own"),
        pytest.param("frontier.admit", "scrapy", "pure layer", id="Scrapy in the pure part"),
        pytest.param("archive.writer", "scrapy", "belongs into", id="Scrapy in the archive"),
        pytest.param("download.watch", "crawler.spiders.web", "may not import", id="a neighbour"),
        pytest.param("middlewares.robots", "hiredis", "belongs into", id="Redis at the edge"),
        pytest.param("policy.robots", "random.Random", "", id="chance as an argument is fine"),
        pytest.param("report.report", "crawler.assembly.crawl.Crawl", "", id="downwards is fine"),
        pytest.param("scheduler.scheduler", "scrapy", "", id="the edge may know Scrapy"),
    ],
)
def test_breaches_of_the_layers_are_found(module: str, imported: str, breach: str) -> None:
    class Fake(Source):
        name = f"crawler.{module}"

        def imports(self) -> Iterator[str]:
            yield imported

    found = list(breaches(Fake(OURS[0].path)))
    assert any(breach in one for one in found) if breach else not found
