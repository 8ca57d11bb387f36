"""Tables and paragraphs: nothing is lost, columns stand under each other, and all fits the width."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from symcircuits import attention_only, explain, explain_many, logit, random_model, verify
from symcircuits.render.tables import measured, number, paragraph, table
from symcircuits.verification.verify import Check, Report


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"), (0, "0"), (0.0, "0"), (-0.0, "0"), (1, "1"), (-1.5, "-1.5"), (1234.5, "1234"), (9999, "9999"),
        (10000, "1e+04"), (123456, "1.2e+05"), (0.001, "0.001"), (0.00099, "0.00099"), (0.00012345, "0.00012"),
        (3.2e-15, "3.2e-15"), (-3.2e-15, "-3.2e-15"), (1 / 3, "0.3333"), (float("inf"), "inf"),
    ],
)  # fmt: skip
def test_numbers(value: float | None, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (26.1456, 1.23, "26.1 +- 1.2"), (1085.08, 141.2, "1,085 +- 141"), (31653.8, 11034.0, "31,654 +- 11,034"),
        (9.96, 0.996, "9.96 +- 1.00"), (2.5, 0.0, "2.5 +- 0"), (1e-12, 1e-13, "1e-12 +- 1e-13"),
        (3e121, 1.5e120, "3e+121 +- 1.5e+120"), (0.0, 0.02, "0.000 +- 0.020"), (5.0, float("inf"), "5 +- inf"),
    ],
)  # fmt: skip
def test_numbers_with_an_error(value: float, error: float, text: str) -> None:
    assert measured(value, error) == text


@given(st.floats(-1e300, 1e300))
def test_a_number_is_short_and_near(value: float) -> None:
    text = number(value)
    assert len(text) <= 9
    assert abs(float(text) - value) <= 0.051 * abs(value)


def test_a_table_in_full() -> None:
    shown = table([["a", "10", "one two"], ["bcd", "2", ""]], ["x", "count", "words"], 80, right=[1])
    assert shown.splitlines() == ["x    count  words", "a       10  one two", "bcd      2"]


def test_a_last_column_with_enough_room_is_wrapped_in_place() -> None:
    words = "word " * 20
    lines = table([["a", words], ["b", "end"]], ["x", "what"], 60).splitlines()
    assert lines[0] == "x  what"
    assert lines[1].startswith("a  word")
    assert all(line.startswith("   word") for line in lines[2:-1])
    assert lines[-1] == "b  end"
    assert max(map(len, lines)) <= 60


def test_a_last_column_without_room_stands_below_its_row() -> None:
    rows = [["a" * 30, "1", "word " * 20], ["b", "22", "end"]]
    lines = table(rows, ["name", "n", "what"], 60, right=[1]).splitlines()
    assert lines[0] == "name" + " " * 29 + "n"
    assert lines[1] == "a" * 30 + "   1"
    assert lines[2] == "    " + ("word " * 11).strip()
    assert lines[-2:] == ["b" + " " * 31 + "22", "    end"]


def test_columns_of_text_are_wrapped_where_they_must_and_numbers_never() -> None:
    rows = [["some words that are long", "1.23456789", "more words that are long", "end"]]
    lines = table(rows, ["first", "number", "second", "last"], 40, right=[1]).splitlines()
    assert max(map(len, lines)) <= 40
    assert "1.23456789" in lines[1]
    assert lines[-1] == "    end"
    kept = " ".join(" ".join(lines[1:]).split())
    assert sorted(kept.split()) == sorted(" ".join(rows[0]).split())


def test_where_numbers_leave_too_little_room_rows_stand_one_by_one() -> None:
    rows = [["composition none", "7", "0.123456", "-20.66", "first"], ["composition V", "", "24.85", "-6.581", ""]]
    header = ["", "terms", "norm", "contribution", "what"]
    assert table(rows, header, 40, right=[1, 2, 3]).splitlines() == [
        "composition none", "    terms 7  norm 0.123456", "    contribution -20.66", "    first",
        "composition V", "    norm 24.85  contribution -6.581",
    ]  # fmt: skip
    assert table(rows, header, 60, right=[1, 2, 3]).splitlines()[0].split() == ["terms", "norm", "contribution", "what"]


@pytest.mark.parametrize("width", [40, 60])
def test_narrow_results_fit_and_cut_no_word(width: int) -> None:
    model = random_model(attention_only((2, 2), biases=True))
    by = logit(2, against=3)
    averages = explain_many(model, [[1, 2, 3], [3, 2]], by=by)
    for found, words in ((explain(model, [1, 2], by=by), "composition"), (averages, "through L1H0")):
        text, wide = found.text(width), found.text(1000)
        assert max(map(len, text.splitlines())) <= width
        assert words in text
        assert set(text.split()) <= set(wide.split())


def test_tables_without_rows() -> None:
    assert table([], ["x", "y"]) == "x  y"


cells = st.text("ab -@[].", max_size=30).map(str.strip)


@given(
    st.lists(st.tuples(cells, st.integers(0, 10**9).map(str), cells), max_size=5),
    st.integers(40, 100),
)
@example([("a" * 30, "1", "b" * 30)], 40)
@example([("a" * 30, "1" * 10, "b" * 30), ("c d", "2", "")], 40)
def test_every_table_fits_and_loses_nothing(rows: list[tuple[str, str, str]], width: int) -> None:
    lines = table(rows, ["text", "number", "words"], width, right=[1]).splitlines()
    assert all(len(line) <= width for line in lines)
    assert all(line == line.rstrip() for line in lines)
    header = bool(lines) and lines[0].split() in (["text", "number"], ["text", "number", "words"])
    letters = re.sub(r"\s", "", "".join(lines[1:] if header else lines))
    expected = "".join("".join(r) + "number" * (not header) for r in rows)
    assert sorted(letters) == sorted(re.sub(r"\s", "", expected))


@given(st.lists(st.text("abc", min_size=1, max_size=20), min_size=1, max_size=30), st.integers(30, 100))
@example(["abc"] * 30, 30)
@example(["a" * 20] * 2, 30)
def test_every_paragraph_fits_and_loses_nothing(words: list[str], width: int) -> None:
    first, *others = paragraph("  " + " ".join(words), width).splitlines()
    assert " ".join([first, *others]).split() == words
    assert all(len(line) <= width for line in (first, *others))
    assert all(line.startswith("    ") for line in others)
    assert bool(others) is (len("  " + " ".join(words)) > width)  # wrapped where it must be, and only there


# ------------------------------------------------------------------------------------------------ reports
@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
def test_a_report_fits_and_shows_every_check(width: int) -> None:
    report = verify(attention_only((2, 2)), max_terms=20)
    text = report.text(width)
    assert max(map(len, text.splitlines())) <= width
    words = " ".join(text.split())
    for check in report.checks:
        assert number(check.bound) in words
        if width > 60:
            assert check.name in words
    assert words.startswith("verify attention-only, heads 2,2")
    assert words.count("pass") >= len([c for c in report.checks if c.passed])
    assert f"all checks passed ({report.seconds:.1f} s)" in words


def check(passed: bool | None, what: str = "seen") -> Check:
    return Check("types", "logits", passed, None if passed is None else 1, None if passed is None else 0, what)


def test_a_report_says_what_fails_and_what_was_not_run() -> None:
    text = Report("a model", (check(True), check(False, "the fault"), check(None, "why")), 0.25).text()
    lines = text.splitlines()
    assert lines[0] == "verify a model"
    assert [line.split()[0] for line in lines[3:6]] == ["pass", "FAIL", "not"]
    assert "logits: the fault" in lines[4]
    assert "logits: why" in lines[5]
    assert lines[5].split()[3:5] == ["-", "-"]
    assert lines[-1] == "1 row failed, 1 row not run (0.2 s)"
    assert Report("a model", (check(None),), 0).text().splitlines()[-1] == "nothing was run (0.0 s)"
    assert Report("a model", (), 0).text().splitlines()[-1] == "nothing was run (0.0 s)"


def test_a_report_states_the_chance_of_a_false_pass() -> None:
    details = {"false_pass": 2e-17, "p": 101, "k": [3, 3]}
    row = Check("same polynomial", "logits", True, 0, 0, "exactly", details)
    shown = " ".join(Report("m", (row,), 0).text(200).split())
    assert "exactly; k x k matrices mod 101, k = 3; a false pass has probability below 2e-17" in shown
    row = Check("same polynomial", "logits", True, 0, 0, "exactly", {**details, "k": [3, 7]})
    assert "k = 3 to 7" in Report("m", (row,), 0).text(200)
