"""What a run of the tests spends: how many examples a property test tries, and in which order the
files of tests begin.

Rule: those that take longest begin first, or all would wait for one in the end. The order is as
measured, and need not be exact; a file of ten seconds is worth a line.
"""

from __future__ import annotations

from typing import Final

from hypothesis import settings

HYPOTHESIS_EXAMPLES: Final = 100
FUZZ_TIMES: Final = 5  # a round of `make fuzz` then takes three minutes on two cores


def examples(usual: int) -> int:
    """*usual*, or more under `make fuzz`. Called at import: the profile is chosen by then."""
    return usual * settings.default.max_examples // HYPOTHESIS_EXAMPLES


LONGEST: Final = (
    "test_redis_unavailable",
    "test_content_crash",
    "test_shared_restarts",
    "test_share",
    "test_changes",
    "test_bundles",
    "test_shared_addresses",
    "test_pacing",
    "test_hostile_content",
    "test_power_cut",
    "test_snapshots",
    "test_snapshot",
    "test_damaged_runs",
    "test_shared_cluster",
    "test_shared_expired_leases",
    "test_shared_crash",
    "test_shared_content_crash",
    "test_shared_crawl",
    "test_lost_writes",
    "test_delivery_crash",
    "test_hostile_crawl",
    "test_coverage",
    "test_commands",
    "test_shared_repeats",
    "test_memory",
    "test_shared_random_failures",
    "test_delivery",
    "test_near_index_crash",
    "test_scrapyd",
    "test_isolated_parsers",
    "test_shared_frontier",
    "test_delivery_crawl",
    "test_purge",
    "test_frontier_lives",
    "test_owned_shards",
    "test_crash",
    "test_interactive_commands",
    "test_conditional_visits",
    "test_repeats_crash",
    "test_stop",
    "test_content_memory",
    "test_full_redis",
    "test_missing_columns",
    "test_worker_names",
    "test_rules_change",
    "test_acl",
    "test_metrics",
    "test_broken_bodies",
    "test_simulate",
    "test_exports",
    "test_delivery_process",
    "test_simulated_faults",
    "test_replay",
    "test_hanging_hosts",
    "test_disk_full",
    "test_shared_near_duplicates",
    "test_outbox_crash",
    "test_readme",
    "test_columns_crash",
    "test_traps_crawl",
    "test_pushed_crawl",
    "test_html_limits",
    "test_bench",
    "test_warc_crash",
    "test_download_handler",
    "test_redis_servers",
    "test_robots_concurrency",
    "test_linear",
    "test_kept_arguments",
    "test_pywb",
    "test_testing_page",
    "test_users_project",
    "test_archive_judges",
    "test_redis_nodes",
    "test_data_dir",
    "test_fingerprint_index",
)
