"""What a file of labelled examples may hold, and what is said of a line that it may not."""

import json

import pytest

from reflexion.graphs import ConfigurationError, make_example, read_examples

GOOD = {"task": "2 + 2?", "answer": "4", "truth": True}


def write(path, *lines):
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), encoding="utf-8")
    return path


def test_lines_become_examples_with_their_own_id_or_their_number(tmp_path):
    tests = GOOD | {"tests": "assert f() == 1", "id": "own"}
    path = write(tmp_path / "e.jsonl", GOOD, "", tests, GOOD | {"expect": 4, "truth": False}, GOOD | {"id": 9})
    examples = read_examples(path)
    assert [example.id for example in examples] == ["1", "own", "4", "9"]
    assert [example.truth for example in examples] == [True, True, False, True]
    assert (examples[1].task.tests, examples[2].task.expect) == ("assert f() == 1", 4)
    assert len(read_examples(path, limit=2)) == 2


def test_a_line_ends_where_json_says_and_not_at_every_kind_of_line_end(tmp_path):
    path = tmp_path / "e.jsonl"
    path.write_text("\ufeff" + json.dumps(GOOD | {"answer": "a\u2028b\x85c"}, ensure_ascii=False) + "\r\n", "utf-8")
    assert [example.answer for example in read_examples(path)] == ["a\u2028b\x85c"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "is not JSON"),
        ("[1]", "is no object"),
        ({"task": "t", "answer": "a"}, "truth missing"),
        (GOOD | {"truth": "yes"}, "neither true nor false"),
        (GOOD | {"truth": 1}, "neither true nor false"),
        (GOOD | {"answer": " "}, "leave it out"),
        (GOOD | {"answer": None}, "no text"),
        (GOOD | {"task": ""}, "what was asked for"),
        (GOOD | {"reference": "4"}, "'reference' is not known"),
        (GOOD | {"number": "4"}, "'number' is not known"),
        (GOOD | {"id": [1]}, "id"),
        (GOOD | {"tests": "assert ("}, "line 1"),
        (GOOD | {"expect": "re:("}, "regular expression"),
        (GOOD | {"criteria": "short"}, "criteria"),
        (GOOD | {"tests": "assert f()", "expect": "4"}, "both"),
    ],
)
def test_a_bad_line_is_named_with_what_to_do(tmp_path, line, words):
    with pytest.raises(ConfigurationError, match=r"e\.jsonl: line 2: ") as error:
        read_examples(write(tmp_path / "e.jsonl", GOOD, line, GOOD))
    assert words in str(error.value)


def test_bad_lines_count_even_behind_the_limit(tmp_path):
    with pytest.raises(ConfigurationError, match=r"line 2: .*line 3: .*line 4: .*and 2 more"):
        read_examples(write(tmp_path / "e.jsonl", GOOD, *["{"] * 5), limit=1)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([GOOD | {"id": "a"}, GOOD | {"id": "a"}], "'a' is given twice"),
        ([GOOD | {"id": "2"}, GOOD], "'2' is given twice"),
        ([""], "holds no examples"),
    ],
)
def test_a_file_that_makes_no_sense_as_a_whole_is_refused(tmp_path, lines, words):
    with pytest.raises(ConfigurationError, match=words):
        read_examples(write(tmp_path / "e.jsonl", *lines))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match=r"none\.jsonl"):
        read_examples(tmp_path / "none.jsonl")


def test_the_key_tells_what_is_judged_and_not_what_is_known_of_it():
    one = make_example("t", "a", truth=True, id="x")
    assert one.key == make_example("t", "a", truth=False, id="y").key
    assert one.key != make_example("t", "b", truth=True).key
    assert one.key != make_example("t", "a", truth=True, expect="b").key
