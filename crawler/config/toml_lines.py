"""Where keys and tables stand in a TOML file, which `tomllib` does not tell."""

from __future__ import annotations

import re
from typing import Final

_MARK: Final = re.compile(r""""(?:[^"\\]|\\.)*"|'[^']*'|#.*|[{}]""")


class TomlLines:
    """The lines of a file of keys and then of tables of one name, numbered from 1."""

    def __init__(self, written: str, table: str) -> None:
        """*table*: the name of the tables, each under a line [[name]], or in braces."""
        self._lines = written.split("\n")
        is_header = re.compile(rf"\s*\[\[\s*{table}\s*\]\]").match
        headers = [at for at, line in enumerate(self._lines, start=1) if is_header(line)]
        self._is_inline = not headers
        self._tables = headers or self._in_braces(self.of_key(table, 0))

    def _in_braces(self, begin: int) -> list[int]:
        """Return the lines of the tables in braces from the line *begin* on."""
        found: list[int] = []
        depth = 0
        for at in range(begin, len(self._lines) + 1):
            for mark in _MARK.findall(self._lines[at - 1]):
                if mark == "{" and not depth:
                    found.append(at)
                depth += (mark == "{") - (mark == "}")
        return found

    def of_table(self, number: int) -> int:
        """Return the line where table *number*, from 0, begins."""
        return self._tables[number] if number < len(self._tables) else 1

    def of_key(self, name: str, begin: int) -> int:
        """Return the first line of *name*, a key or a table, after the line *begin* of a table; 0:
        in the whole file."""
        if begin and self._is_inline:
            return begin  # such a table is one line
        is_key = re.compile(rf"\s*(?:\[\[?\s*)?([\"']?){re.escape(name)}\1\s*[\].=]").match
        for at in range(begin, len(self._lines)):
            if is_key(self._lines[at]):
                return at + 1
        return max(begin, 1)

    def of_text(self, text: str, begin: int) -> int:
        """Return the first line that has *text* in quotes, from the line *begin* on."""
        for at in range(begin - 1, len(self._lines)):
            if f'"{text}"' in self._lines[at] or f"'{text}'" in self._lines[at]:
                return at + 1
        return begin
