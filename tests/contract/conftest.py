from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.harness.frontiers import STORES, EmbeddedWorld
from tests.harness.owned_world import OwnedWorld, open_nodes
from tests.harness.remote_world import RemoteWorld
from tests.servers.redis import RedisServer


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


WORLDS = (*STORES, OwnedWorld)
# What a URL Frontier has, too: it knows no levels, budgets or bundles, and leases end by its clock.
OF_URL_FRONTIERS = {
    "test_a_claim_is_written_with_the_finish",
    "test_a_failure_of_the_whole_host_counts_no_attempt_and_its_pace_is_kept",
    "test_a_lease_is_released_and_finished_once",
    "test_a_redirect_target_waits_for_its_own_host",
    "test_a_redirect_to_a_key_of_its_own_chain_is_no_seen_test",
    "test_a_redirect_to_a_seen_url_adds_nothing",
    "test_a_rest_survives_a_restart",
    "test_a_rest_survives_that_the_host_runs_dry",
    "test_a_robots_txt_that_another_host_waits_for_goes_before_all_urls_of_its_own",
    "test_a_url_is_leased_until_it_is_finished_and_then_never_again",
    "test_an_unfiltered_url_passes_the_seen_test_every_time",
    "test_done_with_a_next_visit_comes_again_as_new",
    "test_finishing_without_release_rests_the_host_too",
    "test_one_big_host_does_not_delay_other_hosts",
    "test_put_back_goes_to_the_head_and_counts_no_attempt",
    "test_the_seen_test_counts_inside_one_call_too",
    "test_two_leases_are_never_open_on_one_host",
    "test_what_a_head_asked_for_survives_the_death_of_the_process",
    "test_what_is_put_back_as_the_last_goes_behind_its_equals",
    "test_what_is_put_back_is_leased_before_its_equals_across_a_restart",
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "world" in metafunc.fixturenames and not hasattr(metafunc.module, "world"):
        is_for_all = metafunc.function.__name__ in OF_URL_FRONTIERS
        kinds = [*WORLDS, RemoteWorld] if is_for_all else WORLDS
        names = [kind.__name__ for kind in kinds]
        metafunc.parametrize("world", kinds, ids=names, indirect=True)


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[RemoteWorld]:
    """For what is a URL Frontier's own."""
    with closing(RemoteWorld(tmp_path / "remote")) as made:
        yield made


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EmbeddedWorld | RemoteWorld]:
    if request.param is RemoteWorld:
        yield request.getfixturevalue("remote")
        return
    if request.param is OwnedWorld:
        server: RedisServer = request.getfixturevalue("redis_server")
        with server.client() as client, open_nodes(server.port) as nodes:
            yield OwnedWorld(client, nodes, tmp_path)
        return
    with request.param(tmp_path) as store:
        yield EmbeddedWorld(store, tmp_path)


@pytest.fixture(params=STORES, ids=lambda store: store.__name__)
def embedded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EmbeddedWorld]:
    """For what is the embedded frontier's own."""
    with request.param(tmp_path) as store:
        yield EmbeddedWorld(store, tmp_path)
