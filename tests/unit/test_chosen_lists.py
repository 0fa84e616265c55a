"""Which lists of `only=LIST` are not over, in a crawl of one process."""

from __future__ import annotations

from msgspec.structs import replace

from crawler.config.arguments import Arguments
from crawler.config.settings import read_config
from crawler.data.allowed_origins import AllowedOrigins
from crawler.data.chosen_lists import LocalLists
from crawler.frontier.memory_store import MemoryStore
from crawler.model.choices import ListState
from crawler.model.types import Candidate, HostKey
from crawler.policy.refusal import Reason


def test_a_list_is_added_again_only_when_it_is_over_or_was_not_added_whole():
    store = MemoryStore()
    assert LocalLists(store).begin("a") == (ListState.ADDING, 2)
    assert LocalLists(store).begin("a") == (ListState.ADDING, 3), "killed while it was added"
    LocalLists(store).note_added("a", 3)
    assert LocalLists(store).begin("b") == (ListState.ADDING, 4)
    LocalLists(store).note_added("b", 4)
    assert LocalLists(store).begin("a") == (ListState.ADDED, 3)
    assert LocalLists(store).begin("b") == (ListState.ADDED, 4)
    LocalLists(store).end()
    assert LocalLists(store).begin("a") == (ListState.ADDING, 5)


def test_of_what_waits_twice_only_the_last_is_fetched():
    arguments = Arguments(seeds="none", only="plan.jsonl")
    origins = AllowedOrigins(read_config({}), arguments, MemoryStore(), 7, 1e9)
    origins.note_chosen([1])
    origins.end_chosen(3)
    listed = Candidate("https://a.example/", 1, HostKey("a.example"), "a.example")

    def reason(chosen: bool | int, key: int = 1) -> Reason | None:
        refusal = origins.choice_refusal(replace(listed, key=key, chosen=chosen))
        return refusal.reason if refusal is not None else None

    assert reason(chosen=2) is reason(chosen=False) is Reason.CHOSEN_TWICE
    assert reason(chosen=False, key=9) is Reason.NOT_CHOSEN
    kept = [(3, 1), (4, 1), (True, 1), (2, 9), (True, 9)]
    assert [reason(chosen, key) for chosen, key in kept] == [None] * len(kept)
