"""What a page of the documents has its reader type, save and see, in its order.

Rule: blocks that are indented are typed, ```text is what is seen, and a block of code is saved if
the line before it ends with the name of a file.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

_BLOCK: Final = re.compile(
    r"(?P<before>[^\n]*)\n\n(?:```(?P<kind>\w+)\n(?P<fenced>.*?)^```"
    r"|(?P<typed>(?:    [^\n]*\n|\n(?=    ))+))",
    re.M | re.S,
)
_FILE: Final = re.compile(r"`([\w.]+)`[^`]*:$")


@dataclass(frozen=True)
class Step:
    """One line typed, with those that continue it; a file saved; or an output seen."""

    kind: Literal["typed", "saved", "seen"]
    text: str
    file: str = ""


def steps(page: str) -> Iterator[Step]:
    for block in _BLOCK.finditer(page):
        if block["typed"]:
            for line in command_lines(re.sub(r"(?m)^    ", "", block["typed"])):
                yield Step("typed", line)
        elif block["kind"] == "text":
            yield Step("seen", block["fenced"])
        elif file := _FILE.search(block["before"]):
            yield Step("saved", block["fenced"], file[1])


def command_lines(block: str) -> Iterator[str]:
    begun = ""
    for line in block.strip().splitlines():
        begun += line + "\n"
        if is_whole(begun):
            yield begun.replace("\\\n", " ").strip()
            begun = ""
    assert not begun.strip(), f"a command without its end: {begun}"


def is_whole(text: str) -> bool:
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return False
    return bool(text.strip()) and not text.endswith("\\\n")
