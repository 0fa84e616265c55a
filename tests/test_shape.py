"""The shape of the code: sizes, words, suppressions. A limit is raised by a decision record."""

from __future__ import annotations

import ast
import re
import statistics
from collections.abc import Iterator

import pytest

from tests.longest import LONGEST
from tests.sources import FOLDERS, PROJECT, Source, sources

OURS = [source for source in sources("crawler") if source.text.strip()]
EVERYTHING = sources(*FOLDERS)

BRANCHES = (
    *(ast.If, ast.For, ast.AsyncFor, ast.While, ast.IfExp, ast.ExceptHandler),
    *(ast.comprehension, ast.Assert, ast.match_case),
)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

# What we do not say, and what we say instead (the glossary of docs/architecture.md). Words with
# a second, honest meaning are left to the reader: request, status, block, pop, document.
NEVER = {
    **dict.fromkeys(["task", "job"], "Candidate"),
    **dict.fromkeys(["netloc", "slot", "site"], "host"),
    **dict.fromkeys(["ack", "checkout"], "finish, lease"),
    **dict.fromkeys(["visited", "crawled"], "seen"),
    **dict.fromkeys(["throttle", "penalty"], "rest"),
    **dict.fromkeys(["ready", "eligible"], "due"),
    **dict.fromkeys(["util", "utils", "helper", "helpers", "misc", "manager"], "what it does"),
}
# Scrapy's and asyncio's words are theirs where they are spoken.
PURE_AND_STORED = ("crawler.core", "crawler.policy", "crawler.scheduler", "crawler.storage")
FOREIGN = {"crawler.scheduler.scheduler", "crawler.scheduler.wake", "crawler.storage.warc.archive"}

LISTED = "crawler.settings"  # a table, written from the knobs

SUPPRESSION = re.compile(r"#\s*(noqa|type:\s*ignore|pragma:)")
REASONED = re.compile(
    r"#\s*(noqa: [A-Z0-9, ]+|type: ignore\[[a-z, -]+\]|pragma: [a-z ]+?)\s+[#-]\s*\w.{3,}"
)
UNOWNED = re.compile(r"#.*\b(TODO|FIXME|XXX|HACK)\b")


def functions() -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    return [
        (f"{source.name}:{node.name}", node)
        for source in OURS
        for node in ast.walk(source.tree)
        if isinstance(node, FUNCTIONS)
    ]


def lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def branches(node: ast.AST) -> int:
    """McCabe's number, with boolean operators and asserts counted as branches."""
    total = 1
    for child in ast.walk(node):
        total += isinstance(child, BRANCHES)
        if isinstance(child, ast.BoolOp):
            total += len(child.values) - 1
    return total


def p95(values: list[int]) -> int:
    return sorted(values)[max(0, int(0.95 * len(values)) - 1)]


def test_files_are_small() -> None:
    sizes = {source.name: source.text.count("\n") for source in OURS if source.name != LISTED}
    assert {name: size for name, size in sizes.items() if size > 300} == {}
    assert statistics.median(sizes.values()) <= 120


def test_functions_are_short() -> None:
    sizes = [(lines(node), name) for name, node in functions()]
    assert [one for one in sizes if one[0] > 50] == []
    assert p95([size for size, _ in sizes]) <= 25


def test_functions_branch_little() -> None:
    sizes = [(branches(node), name) for name, node in functions()]
    assert [one for one in sizes if one[0] > 10] == []
    assert p95([size for size, _ in sizes]) <= 6  # docs/decisions/0004


@pytest.mark.parametrize("source", OURS, ids=lambda source: source.name)
def test_every_file_says_what_it_is_for(source: Source) -> None:
    assert ast.get_docstring(source.tree)


def names_made(tree: ast.Module) -> Iterator[str]:
    """Every name that a file gives to something."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def words(name: str) -> set[str]:
    """The words of a name: _isNextDue -> is, next, due."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)}


@pytest.mark.parametrize("source", OURS, ids=lambda source: source.name)
def test_one_word_per_thing(source: Source) -> None:
    assert not words(source.name.rpartition(".")[2]) & {"utils", "helpers", "common", "misc"}
    if not source.name.startswith(PURE_AND_STORED) or source.name in FOREIGN:
        return
    found = {
        name: f"say {NEVER[word]}"
        for name in names_made(source.tree)
        for word in words(name) & NEVER.keys()
    }
    assert found == {}


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_suppression_has_its_reason_on_its_line(folder: str) -> None:
    assert [
        f"{source.path.relative_to(PROJECT)}:{number}: {line.strip()}"
        for source in EVERYTHING
        if source.name.startswith(folder) and source.path.name != "test_shape.py"
        for number, line in enumerate(source.text.splitlines(), 1)
        if SUPPRESSION.search(line) and not REASONED.search(line)
    ] == []


def test_nothing_is_left_to_be_done_by_nobody() -> None:
    assert [
        f"{source.path.relative_to(PROJECT)}:{number}"
        for source in EVERYTHING
        if source.path.name != "test_shape.py"
        for number, line in enumerate(source.text.splitlines(), 1)
        if UNOWNED.search(line)
    ] == []


def test_each_file_that_is_begun_first_is_there() -> None:
    assert set(LONGEST) <= {path.stem for path in (PROJECT / "tests").rglob("test_*.py")}
