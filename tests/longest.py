"""Which files of tests take longest: they are begun first, or all would wait for one in the end.

Rule: the order is as measured, and need not be exact; a file of ten seconds is worth a line.
"""

from __future__ import annotations

from typing import Final

LONGEST: Final = (
    "test_content_crash",
    "test_memory",
    "test_shared_content_crash",
    "test_shared_states",
    "test_shared_restarts",
    "test_delivery_crash",
    "test_share",
    "test_shared_crash",
    "test_shared_crawl",
    "test_shared_pause",
    "test_shared_lives",
    "test_shared_cluster",
    "test_frontier_lives",
    "test_near_crash",
    "test_columns_crash",
    "test_crash",
    "test_coverage",
    "test_content_memory",
    "test_hostile_content",
    "test_shared_names",
    "test_scrapyd",
    "test_delivery",
    "test_stop",
    "test_acl",
    "test_commands",
    "test_delivery_crawl",
    "test_bad_input",
    "test_politeness",
    "test_apart",
    "test_delivery_process",
    "test_disk_full",
    "test_data_dir",
    "test_near_index",
    "test_repeats_crash",
    "test_outbox_crash",
    "test_hostile_crawl",
    "test_testing_page",
    "test_replay",
)
