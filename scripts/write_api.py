"""Write docs/api.md from the docstrings and the comments of what crawler/api.py names.

Run by `make settings`; tests/test_docs.py compares. As in write_settings.py, only what stands
between the two marks is written.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Final

from scrapy import Spider

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, Python looks beside it, not here

from crawler import api  # noqa: E402  # needs the path above
from crawler.archive.lookup import Entry  # noqa: E402  # needs the path above
from crawler.archive.reader import ArchivedCapture  # noqa: E402  # needs the path above
from crawler.model.page import About, LinkKind  # noqa: E402  # needs the path above
from crawler.policy.priority import Hints  # noqa: E402  # needs the path above
from scripts.write_settings import written  # noqa: E402  # needs the path above

CHAPTERS: Final = {
    "Spiders and pipelines": ("WebSpider", "page_of", "Page", "Flaw"),
    "Parsers": ("Source", "Parsed", "Link", "Unreadable"),
    "The order of URLs": ("Prioritizer", "CashPrioritizer", "DepthPrioritizer"),
    "The archive": ("lookup", "read_entry"),
}
PASSED: Final = (LinkKind, About, Hints, Entry, ArchivedCapture)


def page_lines() -> Iterator[str]:
    for chapter, names in CHAPTERS.items():
        yield from [f"## {chapter}", ""]
        for name in names:
            yield from described(getattr(api, name))
    yield from ["## What these hold", "", "Values of these classes are passed, not imported.", ""]
    for each in PASSED:
        yield from described(each)


def described(thing: Any) -> Iterator[str]:
    """What a reader needs of a class or function: its docstring, fields and methods."""
    yield from [f"### `{thing.__name__}`", ""]
    if inspect.isfunction(thing):
        yield from [f"    {signature(thing)}", "", doc(thing), ""]
        return
    yield from [doc(thing), ""]
    fields = list(fields_of(thing))
    if issubclass(thing, Enum):
        yield from ["| name | value | |", "| --- | --- | --- |"]
        yield from [f"| `{name}` | `{thing[name].value!r}` | {said} |" for name, *_, said in fields]
        yield ""
    elif fields and not issubclass(thing, Spider):  # what it keeps for itself
        yield from ["| field | type | default | |", "| --- | --- | --- | --- |"]
        yield from [f"| `{name}` | {' | '.join(rest)} |" for name, *rest in fields]
        yield ""
    for name, member in vars(thing).items():
        method = member.fget if isinstance(member, property) else member
        if name.startswith("_") or not inspect.isfunction(method) or not method.__doc__:
            continue
        shown = name if isinstance(member, property) else signature(method)
        yield from [f"- `{shown}`: {doc(method)}", ""]


def signature(function: Any) -> str:
    """As it is called: without self."""
    node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    node.args.args = [each for each in node.args.args if each.arg != "self"]
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{node.name}({ast.unparse(node.args)}){returns}"


def doc(thing: Any) -> str:
    """Its docstring, without what is said to those who read the code."""
    text = " ".join((inspect.getdoc(thing) or "").split())
    return text.partition(" Arrow: ")[0]


def fields_of(thing: type) -> Iterator[tuple[str, str, str, str]]:
    """Name, type, default and comment of each public field, as the source has them."""
    lines = textwrap.dedent(inspect.getsource(thing)).splitlines()
    (node,) = ast.parse("\n".join(lines)).body
    assert isinstance(node, ast.ClassDef)
    for child in node.body:
        if isinstance(child, ast.AnnAssign):
            name: ast.expr = child.target
            kind, default = code(child.annotation), code(child.value)
        elif isinstance(child, ast.Assign) and issubclass(thing, Enum):
            name, kind, default = child.targets[0], "", ""
        else:
            continue
        if isinstance(name, ast.Name) and not name.id.startswith("_"):
            yield name.id, kind, default, comment(lines, child)


def code(node: ast.expr | None) -> str:
    return f"`{ast.unparse(node)}`".replace("|", "\\|") if node else ""


def comment(lines: list[str], node: ast.stmt) -> str:
    """What stands behind a field, or on the lines before it."""
    assert node.end_lineno is not None
    behind = lines[node.end_lineno - 1][node.end_col_offset :].strip()
    if behind.startswith("#"):
        return behind.lstrip("# ").replace("<", "&lt;")
    above: list[str] = []
    for line in reversed(lines[: node.lineno - 1]):
        if not line.strip().startswith("#"):
            break
        above.insert(0, line.strip().lstrip("# "))
    return " ".join(above).replace("<", "&lt;")


def files() -> dict[Path, Iterator[str]]:
    return {ROOT / "docs" / "api.md": page_lines()}


if __name__ == "__main__":
    for path, lines in files().items():
        path.write_text(written(path.read_text(encoding="utf-8"), lines), encoding="utf-8")
