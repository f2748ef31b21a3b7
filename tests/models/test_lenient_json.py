"""The one JSON object of a reply is found however it is wrapped, and never guessed."""

import json

import pytest
from endpoint import PROMPT, VERDICT
from hypothesis import given
from hypothesis import strategies as st

from reflexion.models import ask_structured, object_of
from reflexion.models.lenient_json import NoJsonError, find_object
from reflexion.testing import Reply

SEVEN = {"score": 7, "feedback": "ok"}
WITH_CODE = {"score": 7, "feedback": "write ```py\nx={}\n``` instead"}

FOUND = [
    pytest.param('```json\n{"score": 7, "feedback": "ok"}\n```', SEVEN, id="fence"),
    pytest.param('```json {"score": 7, "feedback": "ok"} ```', SEVEN, id="fence on one line"),
    pytest.param('Here you go: {"score": 7, "feedback": "ok"} Anything else?', SEVEN, id="prose"),
    pytest.param(json.dumps(WITH_CODE), WITH_CODE, id="fence in a string"),
    pytest.param(f"Well: {json.dumps(WITH_CODE)}", WITH_CODE, id="prose and a fence in a string"),
    pytest.param("{'score': 7, 'feedback': 'ok',}", SEVEN, id="single quotes, trailing comma"),
    pytest.param("```\n{'score': 7, 'feedback': 'ok',}\n```", SEVEN, id="the same in a fence"),
    pytest.param(f"{json.dumps(SEVEN)}\nAgain: {json.dumps(SEVEN)}", SEVEN, id="the same twice"),
    pytest.param(f"Let {{a, b}} be the set, and {{}} empty. {json.dumps(SEVEN)}", SEVEN, id="braces in prose"),
    pytest.param(f'He said {{: "well".\n```json\n{json.dumps(SEVEN)}\n```', SEVEN, id="open brace before a fence"),
    pytest.param('{"score": NaN, "feedback": "ok"}', {"score": None, "feedback": "ok"}, id="NaN"),
]

NOT_FOUND = [
    pytest.param("no json", id="none"),
    pytest.param("", id="empty"),
    pytest.param("[1, 2]", id="list"),
    pytest.param('{"score": 8, "feedback": "The fun', id="cut"),
    pytest.param('{"score": 8, "criteria": [{"name": "a", "score": 9}, {"na', id="cut with an inner object"),
    pytest.param('```json\n{"a": {"score": 9}, "b', id="cut in a fence"),
    pytest.param("{'score': 8, 'note': 'the set {'score': 9} …", id="cut with an inner one that wants repair"),
    pytest.param('{"score": 2} or rather {"score": 9}', id="two different"),
    pytest.param('```json\n{"score": 2}\n```\nno: {"score": 9}', id="two different, one in a fence"),
    pytest.param('{"score": 2, "score": 9}', id="one key twice"),
    pytest.param("[" * 100_000, id="deep"),
    pytest.param('{"a":' * 100_000 + "}" * 100_000, id="deep object"),
]


@pytest.mark.parametrize(("text", "value"), FOUND)
def test_it_is_found(text, value):
    assert find_object(text) == value


@pytest.mark.parametrize("text", NOT_FOUND)
def test_no_verdict_rather_than_a_guess(text):
    with pytest.raises(NoJsonError):
        find_object(text)


@pytest.mark.parametrize(("text", "value"), FOUND)
async def test_one_request_is_enough(endpoint, text, value):
    endpoint.server.default("m", Reply(text))
    read = await ask_structured(endpoint.client(), PROMPT, endpoint.meter(), VERDICT, object_of)
    assert (read.value, endpoint.server.count) == (value, 1)


@pytest.mark.parametrize("text", NOT_FOUND)
async def test_one_more_request_shows_what_was_wrong_and_no_third_follows(endpoint, text):
    endpoint.server.default("m", Reply(text))
    read = await ask_structured(endpoint.client(), PROMPT, endpoint.meter(), VERDICT, object_of)
    assert read.value is None
    assert read.problem
    assert endpoint.server.count == 2
    assert "cannot be used" in endpoint.bodies[1]["messages"][-1]["content"]


async def test_a_cut_off_verdict_is_not_believed(endpoint):
    endpoint.server.script("m", Reply('{"score": 8}', finish_reason="length"), Reply('{"score": 3}'))
    read = await ask_structured(endpoint.client(), PROMPT, endpoint.meter(), VERDICT, object_of)
    assert read.value == {"score": 3}
    assert "cut off" in endpoint.bodies[1]["messages"][-1]["content"]


@pytest.mark.parametrize("arguments", ["{'score': 8,}", '{"score": 8}'])
async def test_arguments_of_a_tool_call_are_read_as_leniently(endpoint, arguments):
    endpoint.server.default("m", Reply.tool("verdict", arguments))
    read = await ask_structured(endpoint.client(), PROMPT, endpoint.meter(), VERDICT, object_of)
    assert (read.value, endpoint.server.count) == ({"score": 8}, 1)


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
PROSE = st.text(st.characters(codec="utf-8", exclude_characters='{}`"'), max_size=30)


@given(
    value=st.dictionaries(TEXT, VALUES, max_size=4),
    before=PROSE,
    after=PROSE,
    wrap=st.sampled_from(["{}", "```json\n{}\n```", "```\n{}\n```", "```json {} ```"]),
    indent=st.sampled_from([None, 2]),
    ascii_only=st.booleans(),
)
def test_any_object_in_prose_or_a_fence_is_found(value, before, after, wrap, indent, ascii_only):
    body = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert find_object(f"{before}{wrap.replace('{}', body)}{after}") == value


@given(value=st.dictionaries(TEXT, VALUES, min_size=1, max_size=4), data=st.data())
def test_a_cut_object_yields_none_of_its_parts(value, data):
    body = json.dumps(value)
    end = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(NoJsonError):
        find_object(body[:end])
