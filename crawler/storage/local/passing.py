"""A data directory that nobody keeps: of its own folder, and gone when it is closed, or with the
process."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from crawler.storage.local.datadir import DataDir


class PassingDir(DataDir):
    def __init__(self) -> None:
        # A shell ends without closing anything: what is open in it is no reason to complain then.
        self._folder = TemporaryDirectory(prefix="gossamer-", ignore_cleanup_errors=True)
        super().__init__(Path(self._folder.name))

    def close(self) -> None:
        super().close()
        self._folder.cleanup()
