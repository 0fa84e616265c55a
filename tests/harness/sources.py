"""Our own source files, as the tests about them read them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).parents[2]
FOLDERS: Final = ("crawler", "demo", "bench", "scripts", "tests")


@dataclass(frozen=True)
class Source:
    """One Python file."""

    path: Path

    @property
    def name(self) -> str:
        """As it is imported: crawler.model.url. A package is called by its own name."""
        parts = self.path.relative_to(PROJECT).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    def imports(self) -> Iterator[str]:
        """Everything it imports, in full, wherever in the file that is."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{self.name}: write imports in full"
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def sources(*folders: str) -> list[Source]:
    """All files of *folders*, sorted, but for those that protoc has written in its own style."""
    return [
        Source(path)
        for folder in folders
        for path in sorted((PROJECT / folder).rglob("*.py"))
        if not path.stem.endswith(("_pb2", "_pb2_grpc"))
    ]
