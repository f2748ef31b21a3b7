"""The cache of deterministic replies."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

from reflexion.models.cache import Cache, cache_key
from reflexion.models.ends import DeadlineExceeded
from reflexion.models.errors import ModelError
from reflexion.models.exchange import Exchange, unsent_call
from reflexion.models.replies import Reply
from reflexion.models.usage import Usage

PROMPT = [SystemMessage("be brief"), HumanMessage("2+2?")]


def key(endpoint="http://127.0.0.1:1/v1", model="m", messages=PROMPT, **parameters):
    return cache_key(endpoint, model, messages, {"temperature": 0.0} | parameters)


class Model:
    """Counts what it is asked."""

    def __init__(self, reply=None, error=None):
        self.asked = 0
        self.reply = reply or Reply(text="4")
        self.error = error
        self.release = asyncio.Event()
        self.release.set()

    async def __call__(self):
        self.asked += 1
        await self.release.wait()
        if self.error is not None:
            raise self.error
        return self.reply


async def test_the_same_request_is_sent_once():
    cache, model = Cache(), Model()
    assert await cache.answer(key(), model) == (Reply(text="4"), False)
    assert await cache.answer(key(), model) == (Reply(text="4"), True)
    assert model.asked == 1


@pytest.mark.parametrize(
    "other",
    [
        {"endpoint": "http://127.0.0.1:2/v1"},
        {"model": "n"},
        {"messages": PROMPT[1:]},
        {"messages": [*PROMPT[:1], HumanMessage("2+3?")]},
        {"messages": [HumanMessage("be brief"), HumanMessage("2+2?")]},
        {"seed": 1},
        {"top_p": 0.5},
        {"tools": [{"type": "function"}]},
        {"extra_body": {"response_format": {"type": "json_object"}}},
    ],
)
def test_all_that_shapes_a_reply_is_in_the_key(other):
    assert key(**other) is not None
    assert key(**other) != key()


@pytest.mark.parametrize(
    "other",
    [
        {"max_tokens": 7},
        {"extra_body": {"max_completion_tokens": 7}},
        {"stream": True, "stream_usage": True},
        {"temperature": 0},
        {"messages": [message.model_copy(update={"id": "1"}) for message in PROMPT]},
    ],
)
def test_what_leaves_the_reply_as_it_is_stays_out_of_the_key(other):
    assert key(**other) == key()


@pytest.mark.parametrize("temperature", [0.1, 1, None])
def test_only_temperature_0_is_deterministic_even_with_a_seed(temperature):
    assert key(temperature=temperature, seed=1) is None
    assert cache_key("", "m", PROMPT, {"seed": 1}) is None


def test_parameters_that_cannot_be_compared_are_not_cached():
    assert key(callback=object()) is None


async def test_a_request_without_a_key_is_always_sent():
    cache, model = Cache(), Model()
    for _ in range(2):
        assert (await cache.answer(None, model))[1] is False
    assert model.asked == 2
    assert cache.size == (0, 0)


@pytest.mark.parametrize(
    "reply",
    [
        Reply(text="4", truncated=True),
        Reply(text="no", refusal="I can't help."),
        Reply(text=""),
        AIMessage("4", response_metadata={"finish_reason": "length"}),
        AIMessage("", response_metadata={"finish_reason": "content_filter"}),
        AIMessage("", additional_kwargs={"refusal": "no"}),
    ],
)
async def test_a_reply_that_is_cut_off_refused_or_empty_is_not_kept(reply):
    cache, model = Cache(), Model(reply)
    for _ in range(2):
        assert await cache.answer(key(), model) == (reply, False)
    assert model.asked == 2


async def test_a_reply_of_only_a_tool_call_is_kept():
    message = AIMessage("", tool_calls=[{"name": "now", "args": {}, "id": "1"}])
    cache, model = Cache(), Model(message)
    await cache.answer(key(), model)
    assert await cache.answer(key(), model) == (message, True)


async def test_a_failure_is_not_kept():
    cache, model = Cache(), Model(error=ModelError("timeout", "late"))
    for _ in range(2):
        with pytest.raises(ModelError):
            await cache.answer(key(), model)
    assert model.asked == 2


async def test_what_a_caller_does_to_its_reply_does_not_reach_the_next():
    cache, model = Cache(), Model(Reply(text="4", arguments={"is": [4]}))
    for _ in range(3):
        reply, _ = await cache.answer(key(), model)
        assert reply.arguments == {"is": [4]}
        reply.arguments["is"].append(5)
        model.reply = None


async def together(cache, model, number):
    model.release.clear()
    tasks = [asyncio.create_task(cache.answer(key(), model)) for _ in range(number)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return tasks


async def test_identical_requests_at_the_same_time_share_one():
    cache, model = Cache(), Model()
    tasks = await together(cache, model, 20)
    model.release.set()
    answers = await asyncio.gather(*tasks)
    assert model.asked == 1
    assert sorted(cached for _, cached in answers) == [False] + [True] * 19


async def test_a_reply_too_large_to_keep_is_shared_all_the_same():
    cache, model = Cache(max_bytes=10), Model(Reply(text="x" * 100))
    tasks = await together(cache, model, 5)
    model.release.set()
    await asyncio.gather(*tasks)
    assert model.asked == 1
    assert cache.size == (0, 0)


async def test_when_the_request_fails_those_that_waited_ask_for_themselves():
    cache, model = Cache(), Model(error=ModelError("timeout", "late"))
    tasks = await together(cache, model, 5)
    model.release.set()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert model.asked == 5
    assert [error.kind for error in answers] == ["timeout"] * 5


async def test_when_the_request_is_cancelled_one_of_those_that_waited_takes_over():
    cache, model = Cache(), Model()
    first, *others = await together(cache, model, 5)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert not any(task.done() for task in others)
    model.release.set()
    answers = await asyncio.gather(*others)
    assert model.asked == 2
    assert sorted(cached for _, cached in answers) == [False, True, True, True]


async def test_one_that_waited_and_is_cancelled_disturbs_nobody():
    cache, model = Cache(), Model()
    first, second, third = await together(cache, model, 3)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    model.release.set()
    assert (await first)[1] is False
    assert (await third)[1] is True


async def test_one_that_waits_gives_up_at_its_own_deadline():
    cache, model = Cache(), Model()
    (first,) = await together(cache, model, 1)
    with pytest.raises(DeadlineExceeded):
        await cache.answer(key(), model, left_s=0.01)
    model.release.set()
    assert (await first)[1] is False


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 300)), max_size=60),
    st.integers(0, 5),
    st.integers(0, 1000),
)
def test_it_never_holds_more_than_its_bounds(requests, max_entries, max_bytes):
    async def run():
        cache = Cache(max_entries=max_entries, max_bytes=max_bytes)
        for number, length in requests:
            await cache.answer(str(number), Model(Reply(text="x" * length)))
            entries, size = cache.size
            assert entries <= max_entries
            assert size <= max_bytes
            assert size == sum(entry.size for entry in cache._entries.values())
        assert not cache._flights

    asyncio.run(run())


async def test_what_was_used_least_recently_leaves_first():
    cache, model = Cache(max_entries=2), Model()
    for name in ["a", "b", "a", "c"]:
        await cache.answer(name, model)
    assert [(await cache.answer(name, model))[1] for name in ["a", "c", "b"]] == [True, True, False]


def test_a_reply_from_the_cache_is_marked_and_costs_nothing():
    line = unsent_call(Exchange(endpoint="", model="m", role="actor", attempt=2), "cached")
    assert line["outcome"] == "cached"
    assert (line["role"], line["attempt"], line["model"]) == ("actor", 2, "m")
    assert Usage.of([line]).cost_usd == 0
    assert Usage.of([line]).tokens == 0
