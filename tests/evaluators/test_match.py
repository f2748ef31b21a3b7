"""Right answers pass however they are written, wrong ones never, and what was expected is not told."""

import json
import string

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from reflexion.evaluators import ExpectError, Match, Task, match, read_expectation
from reflexion.evaluators.match import final_answer, normalise
from reflexion.evaluators.read_numbers import numbers


async def judge(expect, answer):
    attempt = {"number": 1, "answer": answer, "plan": "", "style": "first"}
    return await Match().evaluate(Task(text="t", expect=expect), attempt)


RIGHT = [
    ("Paris", "paris"),
    ("Paris", "Answer: Paris."),
    ("Paris", "It is in France.\n\n**Answer:** Paris"),
    ("Paris", "**Answer: Paris**"),
    ("Paris", "### Final Answer: **Paris**"),
    ("Paris", "The final answer: Paris"),
    ("Paris", "Answer: London\nno,\nAnswer: Paris"),
    ("Paris", "Answer:\nParis"),
    ("Paris", "> Antwort: Paris"),
    ("Paris", "Answer = Paris"),
    ("Paris", "So \\boxed{Paris}."),
    ("\\frac{1}{2}", "Answer: $\\boxed{\\frac{1}{2}}$"),
    ("the Eiffel Tower", "Answer: Eiffel tower!"),
    ("A", "Answer: (A)"),
    ("A", "Answer: a."),
    ("Option A", "Answer: option A"),
    ("U.S.", "US"),
    ("well-known", "Well known"),
    ("Café", "Cafe\u0301"),
    ("don't", "don’t"),
    ("1,000", "1000"),
    ("-5", "−5"),
    ("1, 2, 3", "[1,2,3]"),
    ("+", "Answer: +"),
    ("!", "!"),
    ("exact:num: 5", "num 5"),
    (True, "true"),
    (42, "Answer: 42"),
    (42, "42 apples"),
    (42, "so 6 * 7 = 42."),
    (42.0, "Answer: 42,0"),
    (-5, "Answer: -5"),
    (-5, "Answer: −5 °C"),
    (-5, "x=-5"),
    (-5, "- $5"),
    (5, "3-5"),
    (1234567, "1,234,567"),
    (1234567, "1.234.567"),
    (1234567, "1 234 567"),
    (1234567, "1\u202f234\u202f567 €"),
    (1234567, "1_234_567"),
    (1234.5, "$1,234.50"),
    (1234.5, "1.234,50 €"),
    (1234.5, "1'234.5"),
    (3.14, "3,14"),
    (0.5, ".5"),
    (1e-9, "1e-9"),
    (3, "1,2,3"),
    (6, "Answer: 5, 6"),
    (4, "between 3 4"),
    ("num:3.14±0.01", "3.15"),
    ("num:100+-5", "105"),
    ({"number": 10, "tolerance": 1}, "11"),
    (1e12, "1000000000001"),
    (0.5, "1/2"),
    (0.5, "Answer: ½ is wrong, so 1 / 2"),
    (0.5, "$\\boxed{\\frac{1}{2}}$"),
    (-0.75, "x = -3/4"),
    (2.5, "2 1/2 cups"),
    (-2.5, "-2 1/2"),
    (5, "12/05 is a date, 10/2 is not"),
    (2024, "on 12/05/2024"),
    (9, "3/4 of 12 = 9"),
    (0.5, "50%"),
    (50, "50 %"),
    (0.125, "12.5%"),
    ("num:1/2", "0.5"),
    ("num:50%", "1/2"),
    ("num:1/3±0.01", "0.33"),
    (42, "42 km"),
    (["Paris", "City of Light"], "Answer: the city of light"),
    (["Paris", 75], "75 departments"),
    ([{"regex": "^a+$"}, "b"], "aaa"),
    (r"re:^\d{4}$", "Answer: 2026"),
    ("re:(?i)hello", "well, HELLO there"),
    ({"regex": "a+b"}, "xaab"),
    ({"exact": 5}, "5"),
    ('json:{"type": "object", "required": ["a"]}', '```json\n{"a": 1}\n```'),
    ({"json_schema": {"type": "array", "maxItems": 2}}, "Answer: [1, 2]"),
]

WRONG = [
    ("Paris", "London"),
    ("Paris", "Answer: London, not Paris"),
    ("Paris", ""),
    ("A", "Answer: (B)"),
    ("A", "Answer: the"),
    ("Option A", "Option"),
    ("3.14", "314"),
    ("3.14", "31.4"),
    ("-5", "5"),
    ("5", "-5"),
    ("1/2", "12"),
    ("x+1", "x-1"),
    ("x-1", "x1"),
    ("C++", "C"),
    ("(a+b)*c", "a+b*c"),
    ("12:30", "1230"),
    ("!", "?"),
    (42, "no idea"),
    (42, ""),
    (42, "43"),
    (42, "4 2"),
    (-5, "5"),
    (12, "1, 2"),
    (56, "5, 6"),
    (314, "3,14"),
    (10203, "1.02.03"),
    ("num:100±5", "106"),
    ("num:100±5", "0"),
    ("num:1000±0.01", "1009"),
    ({"number": 10, "tolerance": 0}, "10.1"),
    (1e300, "1e400"),
    (2, "1/2"),
    (1, "1/2"),
    (3, "4 3/2"),
    (0.5, "1/0"),
    (0.5, "12/24/2024"),
    (0.05, "50%"),
    ("num:50%", "50"),
    (["Paris", "City of Light"], "London"),
    ([1, 2], "3"),
    (r"re:^\d{4}$", "in 2026"),
    ('json:{"type": "object"}', "[]"),
    ('json:{"type": "object"}', "no json"),
    ('json:{"type": "object"}', "[" * 100_000),
]


@pytest.mark.parametrize(("expect", "answer"), RIGHT)
async def test_right_is_right_however_it_is_written(expect, answer):
    verdict = await judge(expect, answer)
    assert (verdict.score, verdict.checks) == (1.0, ())


@pytest.mark.parametrize(("expect", "answer"), WRONG)
async def test_wrong_is_wrong(expect, answer):
    verdict = await judge(expect, answer)
    assert verdict.score == 0.0
    assert verdict.feedback


@pytest.mark.parametrize(
    "expect", ["Zanzibar", "exact:Zanzibar", {"exact": "Zanzibar"}, 31337, "num:31337±2", ["Zanzibar", 31337]]
)
@pytest.mark.parametrize("answer", ["Answer: 7", "nothing", ""])
async def test_what_was_expected_is_never_told(expect, answer):
    verdict = await judge(expect, answer)
    told = f"{verdict.feedback} {list(verdict.checks)}"
    assert verdict.score == 0.0
    assert "Zanzibar" not in told
    assert "31337" not in told


async def test_a_form_is_told_as_a_check_and_the_place_that_breaks_it():
    schema = {"type": "object", "properties": {"a": {"items": {"type": "integer"}}}}
    verdict = await judge({"json_schema": schema}, '{"a": [1, "two"]}')
    assert verdict.feedback == "$.a[1]: 'two' is not of type 'integer'"
    assert "fits this schema" in verdict.checks[0]
    assert list((await judge("re:^x", "y")).checks) == ["the answer matches the regular expression ^x"]


async def test_a_pattern_that_would_search_for_ever_is_no_verdict(monkeypatch):
    monkeypatch.setattr(match, "PATTERN_TIMEOUT_S", 0.1)
    verdict = await judge("re:^(a|a)*$", "a" * 40 + "b")
    assert verdict.score is None
    assert "simplify it" in verdict.feedback


async def test_a_schema_makes_us_fetch_nothing():
    with pytest.raises(Exception, match=r"192\.0\.2\.1"):
        await judge({"json_schema": {"$ref": "http://192.0.2.1/schema"}}, "{}")


@pytest.mark.parametrize(
    "expect",
    [
        "", "  ", None, [], {}, {"regexp": "x"}, {"regex": 5}, "re:(", "num:five", "num:1±x", "num:1±-1", "num:nan",
        "num:1/0", "num:1/x", "num:%", [[1]], ["a", ""], [{"inputs": [[1]], "outputs": [1]}],
        "num:inf", float("nan"), float("inf"), 10**400, {"number": True}, {"number": None},
        {"number": 1, "tolerance": True},        "json:{", 'json:{"type": "nonsense"}', {"json_schema": {"type": 5}},
    ],
)  # fmt: skip
async def test_an_expectation_that_cannot_be_read_says_so_and_is_no_verdict(expect):
    with pytest.raises(ExpectError, match="expect"):
        read_expectation(expect)
    if expect is not None:
        assert (await judge(expect, "x")).score is None


@pytest.mark.parametrize("text", ["note: this", "Answer: 42", "https://example.org", "12:30", "rex: dog"])
def test_a_colon_alone_makes_no_form(text):
    assert read_expectation(text).kind == "exact"


@given(st.text())
@example("C.\u0327")
def test_an_answer_equals_itself_when_normalised_again(text):
    assert normalise(normalise(text)) == normalise(text)


@given(st.integers(-(10**12), 10**12))
async def test_integers_are_read_in_every_notation(number):
    plain = f"{number:,}"
    for text in (str(number), plain, plain.replace(",", "\u202f"), f"Answer: **{plain}** km", plain.replace("-", "−")):
        assert list(numbers(text))[-1] == number


@given(st.integers(-(10**6), 10**6), st.integers(0, 99))
def test_decimals_are_read_in_english_and_german(whole, hundredths):
    assume(whole or not hundredths)
    value = float(f"{whole}.{hundredths:02}")
    english = f"{whole:,}.{hundredths:02}"
    german = english.translate(str.maketrans(",.", ".,"))
    assert [list(numbers(text)) for text in (english, german)] == [[value], [value]]


@given(st.integers(-1000, 1000), st.integers(-1000, 1000))
async def test_different_numbers_are_never_the_same_answer(one, other):
    assume(one != other)
    assert normalise(str(one)) != normalise(str(other))
    assert normalise(str(one / 8)) != normalise(str(other / 8))


@given(st.text(string.ascii_letters + string.digits + " .,-", min_size=1), st.text("\n *_#>", max_size=5))
def test_the_last_answer_line_counts(answer, before):
    assume(answer.strip(" "))
    text = f"Answer: wrong\n{before}\nAnswer: {answer}\n"
    assert final_answer(text) == answer.strip(" ")


@pytest.mark.parametrize("text", ["\n" * 50_000, " " * 50_000, "> " * 20_000, "Answer:" + "*" * 50_000, "1," * 20_000,
                                  "1 " * 30_000, "\\boxed{" * 5_000, "-" * 50_000, "a-" * 30_000])  # fmt: skip
def test_no_answer_is_hard_to_read(text):
    final_answer(text)
    normalise(text)
    list(numbers(text))


async def test_a_long_answer_is_quoted_short():
    verdict = await judge("x", "y" * 10_000)
    assert len(verdict.feedback) < 300
    assert json.dumps(verdict.feedback)
