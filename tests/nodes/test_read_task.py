"""What a run accepts as its task."""

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from reflexion.evaluators import Criterion
from reflexion.graphs import ConfigurationError
from reflexion.nodes.recall import read_task

CHAT = [HumanMessage("first"), AIMessage("reply"), HumanMessage("second"), AIMessage("reply")]


@pytest.mark.parametrize(
    ("given", "text", "from_messages"),
    [
        ({"task": "Sum."}, "Sum.", False),
        ({"task": "Sum.", "messages": CHAT}, "Sum.", False),
        ({"messages": CHAT}, "second", True),
        ({"task": "  ", "messages": CHAT}, "second", True),
    ],
)
def test_the_task_is_the_text_or_else_the_last_human_message(given, text, from_messages):
    spec = read_task(given)
    assert (spec["text"], spec["from_messages"]) == (text, from_messages)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "no task"),
        ({"task": " "}, "no task"),
        ({"messages": [AIMessage("reply")]}, "no task"),
        ({"task": "t", "tests": "assert f()", "expect": "1"}, "give one of them"),
        ({"task": "t", "tests": "x = 1"}, "test"),
        ({"task": "t", "tests": "assert ("}, "test"),
        ({"task": "t", "criteria": ["short (weight none)"]}, "write NAME \\(weight 2\\): TEXT"),
        ({"task": "t", "criteria": ["Short.", "short"]}, "two criteria"),
        ({"task": "t", "expect": {"inputs": [[1]]}}, "outputs"),
    ],
)
def test_what_cannot_be_worked_on_is_refused(given, words):
    with pytest.raises(ConfigurationError, match=words):
        read_task(given)


@pytest.mark.parametrize("kind", [list, tuple])
def test_criteria_are_kept_as_plain_texts(kind):
    given = kind([Criterion("short", "Twelve words at the most.", 2), "It is kind."])
    criteria = read_task({"task": "t", "criteria": given})["criteria"]
    assert criteria == ["short (weight 2): Twelve words at the most.", "It is kind."]
    assert {type(criterion) for criterion in criteria} == {str}


def test_an_empty_expectation_is_none():
    assert read_task({"task": "t", "expect": ""})["expect"] is None
    assert read_task({"task": "t", "expect": 0})["expect"] == 0
