"""Budgets: which limit ends some work, and how it is said."""

import itertools
from typing import Any

import pytest

from symcircuits.core import budgets
from symcircuits.core.budgets import Budget, Ended, told
from symcircuits.core.text import called_by


class Clock:
    """A clock that stands still until it is set."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(budgets, "time", made)
    return made


def test_without_limits_only_memory_ends_work(clock: Clock) -> None:
    budget = Budget()
    budget.terms, budget.expansions, budget.bytes = 10**12, 10**12, 2**30 - 1
    clock.now += 10**9
    assert (budget.until, budget.late, budget.ended()) == (None, False, "")
    budget.bytes += 1
    assert (budget.ended(), budget.reached) == ("max_memory (1,024 MiB)",) * 2


@pytest.mark.parametrize(
    ("limit", "used", "said"),
    [
        ({"max_terms": 1000}, "terms", "max_terms (1,000)"),
        ({"max_expansions": 1000}, "expansions", "max_expansions (1,000)"),
        ({"max_memory": 1000}, "bytes", "max_memory (1,000 bytes)"),
    ],
)
def test_a_limit_is_met_when_all_of_it_is_used(limit: dict[str, int], used: str, said: str) -> None:
    budget = Budget(**limit)  # type: ignore[arg-type]
    setattr(budget, used, 999)
    assert (budget.ended(), budget.reached) == ("", "")
    setattr(budget, used, 1000)
    assert budget.reached == ""  # nobody has asked
    assert (budget.ended(), budget.reached, budget.late) == (said, said, False)
    beyond = Budget(**limit)  # type: ignore[arg-type]
    setattr(beyond, used, 1001)  # work in pieces goes beyond
    assert beyond.ended() == said
    assert Budget(**dict.fromkeys(limit, 0)).ended()  # type: ignore[arg-type]
    assert not Budget(**dict.fromkeys(limit, 1)).ended()  # type: ignore[arg-type]


def test_time_begins_when_the_budget_is_made_and_is_up_at_its_end(clock: Clock) -> None:
    budget = Budget(max_seconds=2.5)
    assert (budget.start, budget.until) == (100.0, 102.5)
    clock.now = 102.25
    assert (budget.late, budget.ended()) == (False, "")
    clock.now = 102.5
    assert (budget.late, budget.reached, budget.ended()) == (True, "", "max_seconds (2.5)")
    assert Budget(max_seconds=0).late
    assert not Budget(max_seconds=float("inf")).late


def test_counts_go_before_time_and_time_before_memory(clock: Clock) -> None:
    limits = {"max_terms": 1, "max_expansions": 1, "max_seconds": 1, "max_memory": 1}
    for first, second in itertools.pairwise(limits):
        budget = Budget(**{name: limits[name] for name in (second, first)})  # type: ignore[arg-type]
        budget.terms = budget.expansions = budget.bytes = 1
        clock.now += 1
        assert isinstance(ended := budget.ended(), Ended)
        assert ended == Ended(first, "1")
        assert ended.name == first


def test_what_ended_the_work_stays(clock: Clock) -> None:
    budget = Budget(max_seconds=1, max_terms=1)
    clock.now += 1
    first = budget.ended()
    budget.terms = 1
    assert first == budget.ended() == budget.reached == "max_seconds (1)"


@pytest.mark.parametrize(
    ("limit", "wanted"),
    [
        ({"max_terms": -1}, "max_terms must be a whole number, 0 or more, not -1"),
        ({"max_terms": 1.5}, "max_terms must be a whole number, 0 or more, not 1.5"),
        ({"max_expansions": True}, "max_expansions must be a whole number, 0 or more, not True"),
        ({"max_memory": None}, "max_memory must be a whole number, 0 or more, not None"),
        ({"max_seconds": -1}, "max_seconds must be seconds, 0 or more, not -1"),
        ({"max_seconds": float("nan")}, "max_seconds must be seconds, 0 or more, not nan"),
    ],
)
def test_what_is_not_a_limit_is_refused(limit: dict[str, Any], wanted: str) -> None:
    with pytest.raises(ValueError, match=wanted):
        Budget(**limit)


def test_limits_are_given_by_name() -> None:
    with pytest.raises(TypeError, match="positional"):
        Budget(7)  # type: ignore[misc]


def test_a_message_names_the_limit_as_the_caller_does() -> None:
    ended = Budget(max_terms=0).ended()
    with called_by(lambda name, *_: "--" + name.replace("_", "-")):
        assert (told(ended), str(ended)) == ("--max-terms (0)", "max_terms (0)")
        assert told("time") == "time"
