"""The answer is taken out of every shape a reply can have, and reasoning is never taken for one."""

import pytest
from endpoint import VERDICT
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

from reflexion.models import ModelError, Models
from reflexion.models.replies import storable, strip_reasoning
from reflexion.testing import Reply

STREAMED = [pytest.param(None, id="whole"), pytest.param(lambda _: None, id="stream")]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("plain", "plain"),
        ('<think>Could be {"score": 2}… no.</think>\n{"score": 8}', '\n{"score": 8}'),
        ('Could be {"score": 2}… no.</think>\n{"score": 8}', '\n{"score": 8}'),
        ("<think>never closed", ""),
        (" \n<THINK>a</THINK>b", "b"),
        ("<thinking>a</thinking>b", "b"),
        ("<seed:think>a</seed:think>b", "b"),
        ('<think duration="3">a</think>b', "b"),
        ("[THINK]a[/THINK]b", "b"),
        ("◁think▷a◁/think▷b", "b"),
        ("<think>a <think>b</think> c</think>d", "d"),
        ("<think>is </think> the end? no</think>d", "d"),
        ("<think>a</think>\n<think>b</think>c", "c"),
        ("<think>a</think>\n<think>b", ""),
        ("a</think>b</think>c", "c"),
        ("<think>a</think>Use <think>x</think> tags", "Use <think>x</think> tags"),
        ("<think>a <think>x</think> and on", ""),
        ("Use <think>x</think> tags", "Use <think>x</think> tags"),
        ("<thinker>a</thinker>b", "<thinker>a</thinker>b"),
    ],
)
def test_reasoning_is_stripped(text, left):
    assert strip_reasoning(text) == left


@given(reasoning=st.text(), answer=st.text(alphabet=st.characters(exclude_characters="<[◁")))
def test_whatever_was_thought_is_not_in_the_answer(reasoning, answer):
    assert strip_reasoning(f"<think>{reasoning}</think>{answer}") == answer or "<think" in reasoning.lower()


@pytest.mark.parametrize("on_token", STREAMED)
@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (Reply("<think>hm</think>\n 42 \n"), "42"),
        (Reply([{"type": "text", "text": "4"}, {"type": "text", "text": "2"}]), "42"),
        (Reply([{"type": "reasoning", "text": "hm"}, {"type": "text", "text": "42"}]), "42"),
        (Reply(""), ""),
        (Reply(None), ""),
        (Reply("", reasoning_content='{"score": 8}'), ""),
        (Reply("42", reasoning_content="hm"), "42"),
        (Reply("a\ud800b\0c"), "a\ufffdbc"),
    ],
)
async def test_the_text_is_what_was_answered(endpoint, reply, text, on_token):
    endpoint.server.default("m", reply)
    assert (await endpoint.ask(on_token=on_token)).text == text
    assert endpoint.server.count == 1


@pytest.mark.parametrize("on_token", STREAMED)
@pytest.mark.parametrize(
    "reply",
    [
        Reply(None, refusal="I can't help."),
        Reply("", refusal="I can't help."),
        Reply("", finish_reason="content_filter"),
        Reply("half an ans", finish_reason="content_filter"),
        Reply("", finish_reason="refusal"),
    ],
)
async def test_a_refusal_is_final(endpoint, reply, on_token):
    endpoint.server.default("m", reply)
    meter = endpoint.meter()
    with pytest.raises(ModelError) as raised:
        await endpoint.ask(meter=meter, on_token=on_token)
    assert raised.value.kind == "refused" == meter.calls[0]["outcome"]
    assert endpoint.server.count == 1


@pytest.mark.parametrize("on_token", STREAMED)
@pytest.mark.parametrize("structure", [None, VERDICT])
async def test_a_cut_off_reply_says_so(endpoint, structure, on_token):
    endpoint.server.default("m", Reply('{"score": 8, "feed', finish_reason="length"))
    reply = await endpoint.ask(structure=structure, on_token=on_token)
    assert reply.truncated
    assert reply.text == '{"score": 8, "feed'
    assert endpoint.server.count == 1


async def test_a_finish_reason_that_is_said_twice_is_understood(endpoint):
    def chunk(delta, finish):
        return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "model": "m"}

    chunks = [chunk({"content": "cut"}, None), chunk({}, "length"), chunk({}, "length")]
    endpoint.server.default("m", Reply(chunks=chunks))
    meter = endpoint.meter()
    assert (await endpoint.ask(meter=meter, on_token=lambda _: None)).truncated
    assert meter.calls[0]["returned_model"] == "m"


@pytest.mark.parametrize(("metadata", "truncated"), [({"stop_reason": "max_tokens"}, True), ({}, False)])
async def test_other_libraries_words_are_understood(endpoint, metadata, truncated):
    own = GenericFakeChatModel(messages=iter([AIMessage("x", response_metadata=metadata)]))
    client = Models(endpoint.models().connection, own=own).client("actor")
    assert (await endpoint.ask(client)).truncated is truncated


async def test_pieces_are_text_as_it_comes(endpoint):
    endpoint.server.default("m", Reply([{"type": "text", "text": "4"}, {"type": "text", "text": "2"}]))
    pieces = []
    await endpoint.ask(on_token=pieces.append)
    assert "".join(pieces) == "42"


@given(st.text(st.characters(codec=None)) | st.dictionaries(st.text(), st.lists(st.text(st.characters(codec=None)))))
def test_what_is_storable_can_be_encoded(value):
    cleaned = str(storable(value))
    assert "\0" not in cleaned
    cleaned.encode()
