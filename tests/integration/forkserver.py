"""Processes that a test starts and kills, forked from one that has imported all that they need.

Rule: a process of tests has one fork server, and the last call that names modules to preload wins.
So they are named here only: a life begins in milliseconds, whichever tests run beside it.
"""

from __future__ import annotations

import multiprocessing
from typing import Final

FORKSERVER: Final = multiprocessing.get_context("forkserver")
FORKSERVER.set_forkserver_preload(
    [
        "tests.imported",
        "tests.integration.columns_life",
        "tests.integration.delivery_life",
        "tests.integration.near_life",
        "tests.integration.repeat_life",
        "tests.integration.test_outbox_crash",
        "tests.integration.warc_life",
    ]
)
