"""What an operator asks for, written into rules and audit, and what goes wrong with that."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from crawler.data.operator_files import (
    Act,
    ActResult,
    Audit,
    Credentials,
    OperatorFiles,
    OperatorStore,
    RulesFile,
)
from crawler.model.types import ConfigError, StoreFull
from crawler.operate.operator import Operator, unfinished
from crawler.operate.verbs import VERBS, ActAnswer, ActRequest, WaitingCount, read_words

LATER = "https://later.example/"  # its dead letter is not put back at once


class FullDisk(RulesFile):
    """A file for which there is no room as long as it *is_full*."""

    is_full = True

    def replace(self, before: str, after: str) -> bool:
        if self.is_full:
            raise StoreFull("no room")
        return super().replace(before, after)


class Edited(RulesFile):
    """A file that somebody edits by hand whenever it is read, some times."""

    edits = 0

    def read(self) -> str:
        found = super().read()
        if self.edits:
            self.edits -= 1
            self.path.write_text(f"{found}# by hand\n")
        return found


class NoCrawl:
    """Acts where no crawl runs."""

    async def count(self, request: ActRequest) -> WaitingCount:
        return WaitingCount(7, 9, is_part=False)

    def __init__(self, store: OperatorStore) -> None:
        self._store = store

    async def take(self, act: Act, undone: Act | None) -> float:
        if act.verb == "retry" and act.targets != (LATER,):
            await self._store.note(ActResult(act.at, act.number, 7))
        return 0.0

    def known(self, urls: Sequence[str]) -> list[str]:
        return [url for url in urls if "known" in url]


def operator(folder: Path, rules: RulesFile | None = None) -> Operator:
    store = OperatorFiles(rules or RulesFile(folder / "rules.toml"), Audit(folder / "audit.jsonl"))
    return Operator(store, 3, lambda: 1000.0, NoCrawl(store))


def act(operated: Operator, *words: str) -> ActAnswer:
    return asyncio.run(operated.act(read_words(words[0], words[1:]), "anna"))


def lines(folder: Path) -> list[Any]:
    return list(Audit(folder / "audit.jsonl").read())


def test_an_act_is_in_the_audit_and_the_rules_when_it_is_answered(tmp_path: Path) -> None:
    answer = act(operator(tmp_path), "delay", "www.example.org", "2m")

    assert answer.number == 1
    (line,) = lines(tmp_path)
    assert (line.by, line.verb, line.targets, line.value) == (
        *("anna", "delay", ("www.example.org",), "2m"),
    )
    assert "delay_s = 120" in (tmp_path / "rules.toml").read_text()


def test_all_rules_are_replaced_at_once_and_come_back(tmp_path: Path) -> None:
    operated, file = operator(tmp_path), tmp_path / "rules.toml"
    act(operated, "delay", "a.example", "5s")
    written = file.read_text()
    text = '[[rule]]\nfor = "b.example"\nrefuse = true\n'
    edit = ActRequest("rules", value=text, before=written)

    asyncio.run(operated.act(edit, "anna"))

    assert file.read_text() == text
    assert lines(tmp_path)[-1].text_before == written
    with pytest.raises(ConfigError, match="have changed meanwhile"):
        asyncio.run(operated.act(edit, "anna"))
    with pytest.raises(ConfigError, match="line 4"):
        asyncio.run(operated.act(ActRequest("rules", value=f"{text}refus = true\n"), "anna"))
    assert file.read_text() == text
    act(operated, "undo")
    assert file.read_text() == written


def test_a_retry_is_written_with_how_many_there_were(tmp_path: Path) -> None:
    answer = asyncio.run(operator(tmp_path).act(ActRequest("retry", all=True), "anna"))

    assert answer.touched == 7
    act, touched = lines(tmp_path)
    assert (act.verb, touched.of, touched.touched) == ("retry", act.number, 7)
    for wrong in (ActRequest("retry"), ActRequest("retry", ("https://a.example/",), all=True)):
        with pytest.raises(ConfigError, match="retry takes"):
            asyncio.run(operator(tmp_path).act(wrong, "anna"))


def test_a_retry_that_is_not_carried_out_at_once_says_so(tmp_path: Path) -> None:
    answer = asyncio.run(operator(tmp_path).act(ActRequest("retry", (LATER,)), "anna"))

    assert answer.touched is None
    assert answer.said.startswith(f"act 1: retry {LATER}: carried out while the crawl runs")
    assert [each.verb for each in unfinished(lines(tmp_path))] == ["retry"]


def test_the_answer_names_what_is_known_already(tmp_path: Path) -> None:
    operated, known = operator(tmp_path), "https://a.example/known"
    assert act(operated, "add", "https://a.example/").said == "act 1: add https://a.example/"
    answer = act(operated, "add", known)
    assert answer.known == 1
    assert answer.said == (
        f"act 2: add {known}; it is known already, and fetched no second time unless added with"
        " --again"
    )
    said = act(operated, "add", "https://a.example/", *[f"{known}/{at}" for at in range(1200)]).said
    assert f"; 999 of the first 1,000 are known already ({known}/0), and fetched" in said


def test_the_answer_names_what_is_undone(tmp_path: Path) -> None:
    operated = operator(tmp_path)
    act(operated, "refuse", "b.example", "c.example")
    assert act(operated, "undo").said == "act 2: act 1 is undone (refuse b.example, c.example)"


def test_acts_are_undone_one_after_the_other(tmp_path: Path) -> None:
    operated = operator(tmp_path)
    act(operated, "delay", "a.example", "5s")
    act(operated, "delay", "a.example", "9s")
    act(operated, "refuse", "b.example", "c.example")

    act(operated, "undo")
    assert "refuse" not in (tmp_path / "rules.toml").read_text()
    act(operated, "undo")
    assert "delay_s = 5" in (tmp_path / "rules.toml").read_text()
    act(operated, "undo")
    assert "[[rule]]" not in (tmp_path / "rules.toml").read_text()
    with pytest.raises(ConfigError, match="nothing to undo"):
        act(operated, "undo")
    assert [line.undoes for line in lines(tmp_path)] == [0, 0, 0, 3, 2, 1]


def test_a_disk_that_is_full_voids_the_act_and_loses_nothing(tmp_path: Path) -> None:
    rules = FullDisk(tmp_path / "rules.toml")
    rules.is_full = False
    operated = operator(tmp_path, rules)
    act(operated, "delay", "a.example", "5s")
    rules.is_full = True
    with pytest.raises(StoreFull):
        act(operated, "refuse", "b.example")
    rules.is_full = False

    assert "refuse" not in rules.read() and "delay_s = 5" in rules.read()
    assert unfinished(lines(tmp_path)) == []
    assert act(operated, "undo").number == 3
    assert lines(tmp_path)[-1].undoes == 1, "the act that is void is not undone"


def test_a_file_that_is_edited_meanwhile_keeps_both_changes(tmp_path: Path) -> None:
    rules = Edited(tmp_path / "rules.toml")
    rules.edits = 3
    act(operator(tmp_path, rules), "delay", "a.example", "5s")

    written = (tmp_path / "rules.toml").read_text()
    assert written.count("# by hand") == 3 and "delay_s = 5" in written


def test_half_a_line_that_a_kill_left_is_left_out(tmp_path: Path) -> None:
    operated = operator(tmp_path)
    act(operated, "refuse", "a.example")
    with (tmp_path / "audit.jsonl").open("ab") as audit:
        audit.write(b'{"at":1,"number":2,"by"')
    act(operated, "refuse", "b.example")

    assert [line.number for line in lines(tmp_path)] == [1, 2]
    assert [each.number for each in unfinished(lines(tmp_path))] == [1, 2]


def test_what_is_left_to_do_is_what_has_no_figure(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "audit.jsonl")
    audit.append(Act(1.0, 1, "anna", "drop", ("a.example",)))
    audit.append(Act(2.0, 2, "anna", "delay", ("a.example",), "5s"))
    audit.append(ActResult(3.0, 1, 12))
    audit.append(Act(4.0, 3, "anna", "undo", ("a.example",), undoes=1))
    audit.append(Act(5.0, 4, "anna", "undo", ("a.example",), undoes=2))

    assert [each.number for each in unfinished(lines(tmp_path))] == [3]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("fly away", "there is no verb 'fly'"),
        ("refuse", "refuse takes TARGET"),
        ("stop now", "stop takes nothing more"),
        ("delay a.example", "is no time"),
        ("delay a.example 5x", "is no time"),
        ("level a.example high", "want a whole number"),
        ("concurrency", "want a whole number"),
        ("pause a.example 2026-12-01T08:00:00", "is no target"),
        ("add ftp://a.example/", "only http and https"),
        ("refuse *", "means all URLs"),
    ],
)
def test_what_cannot_be_done_is_said(words: str, why: str) -> None:
    verb, *rest = words.split()
    with pytest.raises(ConfigError, match=why):
        read_words(verb, rest)


def test_a_level_that_there_is_not_is_refused(tmp_path: Path) -> None:
    asked = ActRequest("add", ("https://www.example.org/",), level=3)
    with pytest.raises(ConfigError, match="level is 3; this crawl has 0 to 2"):
        asyncio.run(operator(tmp_path).act(asked, "anna"))
    assert not lines(tmp_path)


def test_a_pause_that_has_ended_is_refused(tmp_path: Path) -> None:
    """Of now, which is 1,000 s after the epoch."""
    with pytest.raises(ConfigError, match="1970-01-01T00:16:40Z is past"):
        act(operator(tmp_path), "pause", "a.example", "1970-01-01T00:16:40Z")
    assert not lines(tmp_path)
    act(operator(tmp_path), "pause", "a.example", "2036-01-01T00:00:00Z")


def test_too_many_targets_are_refused() -> None:
    with pytest.raises(ConfigError, match="at most 10,000"):
        read_words("drop", [f"h{number}.example" for number in range(10_001)])


def test_each_verb_says_what_it_does() -> None:
    for verb in VERBS.values():
        assert verb.meaning.endswith("."), verb.name


def test_credentials_are_read_from_where_only_their_owner_can(tmp_path: Path) -> None:
    file = tmp_path / "secrets"
    file.write_text("# ours\nlogin=anna:pass=word\n token = Bearer abc \n")
    file.chmod(0o600)

    found = Credentials(file, {"GOSSAMER_CREDENTIALS_other": "b:c", "PATH": "/bin"})

    for name, value in (
        ("login", "Basic YW5uYTpwYXNzPXdvcmQ="),
        ("token", "Bearer abc"),
        ("other", "Basic Yjpj"),
    ):
        for safe in ("https://a.example/", "http://127.0.0.1:8000/"):
            assert found.headers(name, safe) == {"Authorization": value}
    assert found.headers("none", "https://a.example/") == {}
    assert found.headers("login", "http://a.example/") == {}, "others could read it"
    assert "pass" not in repr(found)
    file.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        Credentials(file, {})
    file.chmod(0o600)
    file.write_text("login\n")
    with pytest.raises(ConfigError, match="want NAME=user:password"):
        Credentials(file, {})
