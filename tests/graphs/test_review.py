"""A person's word before an answer is accepted or another attempt is made; requests are counted at the server."""

import asyncio

import pytest
from langgraph.types import Command
from loop_bench import BAD, GOOD, LESSON, Bench

from reflexion.graphs import ConfigurationError, ReviewPending

TASK = "Sum a list."


@pytest.fixture
def passes(bench: Bench):
    bench.server.default("critic-m", GOOD)
    return bench


@pytest.fixture
def fails_once(bench: Bench):
    bench.server.script("critic-m", BAD, GOOD)
    return bench


async def test_nothing_waits_where_no_review_is_asked_for(fails_once):
    async with fails_once.agent() as agent:
        assert (await agent.run(TASK)).passed


async def test_an_approved_answer_is_accepted_and_nothing_is_asked_again(passes):
    async with passes.agent(review="answer") as agent:
        with pytest.raises(ReviewPending, match="'t' waits for a review") as waiting:
            await agent.run(TASK, thread="t")
        asked = passes.server.count
        assert waiting.value.request["answer"] == "answer 1"
    async with passes.agent(review="answer") as agent:
        result = await agent.run(thread="t", decision="approve")
    assert (result.passed, result.answer, result.stop_reason) == (True, "answer 1", "passed")
    assert passes.server.count == asked


async def test_the_reviewers_own_answer_is_accepted_and_teaches_nothing_about_lessons(passes):
    async with passes.agent(review="answer") as agent:
        result = await agent.run(TASK, reviewer=lambda _: {"action": "edit", "answer": "mine"})
    assert (result.answer, result.passed, result.score) == ("mine", True, 1.0)
    assert [(a.style, a.evaluator) for a in result.attempts] == [("first", "critic"), ("edited", "reviewer")]
    assert passes.counts()["critic"] == 1


async def test_a_rejected_answer_has_failed_and_the_reflector_reads_why(passes):
    decisions = iter([{"action": "reject", "feedback": "It forgets negative numbers."}, "approve"])
    async with passes.agent(review="answer") as agent:
        result = await agent.run(TASK, reviewer=lambda _: next(decisions))
    assert "It forgets negative numbers." in passes.prompt("reflector", 0)
    assert "It forgets negative numbers." in passes.prompt("actor", 1)
    assert (result.answer, result.passed) == ("answer 2", True)
    first = result.attempts[0]
    assert (first.score, first.passed, first.evaluator) == (0.0, False, "reviewer")


async def test_rejecting_the_last_answer_ends_the_run_unpassed(passes):
    async with passes.agent(review="answer", max_attempts=1) as agent:
        result = await agent.run(TASK, reviewer=lambda _: "reject")
    assert (result.passed, result.stop_reason, result.answer) == (False, "max_attempts", "answer 1")


async def test_an_edited_reflection_and_plan_are_what_the_next_attempt_reads_and_what_is_kept(fails_once):
    edited = {"action": "edit", "reflection": "Add zero for an empty list.", "plan": "Start from zero."}
    async with fails_once.agent(review="attempt") as agent:
        with pytest.raises(ReviewPending) as waiting:
            await agent.run(TASK, thread="t")
        assert waiting.value.request["reflection"] == LESSON
        result = await agent.run(thread="t", decision=edited)
    prompt = fails_once.prompt("actor", 1)
    assert "Add zero for an empty list." in prompt
    assert "Start from zero." in prompt
    assert LESSON not in prompt
    assert [lesson["text"] for lesson in result.lessons_learned] == ["Add zero for an empty list."]
    assert fails_once.counts() == {"actor": 2, "critic": 2, "reflector": 1, "planner": 1}


async def test_before_another_attempt_the_reviewer_may_write_the_answer(fails_once):
    async with fails_once.agent(review="attempt") as agent:
        result = await agent.run(TASK, reviewer=lambda _: {"action": "edit", "answer": "mine"})
    assert (result.answer, result.passed) == ("mine", True)
    assert fails_once.counts()["actor"] == 1


async def test_an_answer_together_with_a_plan_for_another_attempt_is_refused(fails_once):
    async with fails_once.agent(review="attempt") as agent:
        with pytest.raises(ConfigurationError, match="an answer ends the run"):
            await agent.run(TASK, thread="t", reviewer=lambda _: {"action": "edit", "answer": "mine", "plan": "x"})
        assert (await agent.run(thread="t", decision={"action": "edit", "answer": "mine"})).answer == "mine"


@pytest.mark.parametrize("review", ["answer", "attempt"])
async def test_the_reviewer_may_end_the_run_with_its_best_attempt(bench: Bench, review):
    bench.server.default("critic-m", GOOD if review == "answer" else BAD)
    async with bench.agent(review=review) as agent:
        result = await agent.run(TASK, reviewer=lambda _: "stop")
    assert (result.stop_reason, result.answer, result.passed) == ("cancelled", "answer 1", False)
    assert bench.counts()["actor"] == 1


async def test_a_reviewer_may_be_async_and_sees_all_there_is(fails_once):
    seen = []

    async def reviewer(request):
        seen.append(request)
        await asyncio.sleep(0)
        return {"action": "approve"}

    async with fails_once.agent(review="both") as agent:
        assert (await agent.run(TASK, reviewer=reviewer)).passed
    attempt, answer = seen
    assert (attempt["about"], attempt["score"], attempt["plan"]) == (
        "attempt",
        0.4,
        "1. Look at the empty list.",
    )
    assert (answer["about"], answer["attempt"], answer["answer"]) == ("answer", 2, "answer 2")


@pytest.mark.parametrize(
    ("decision", "says"),
    [
        ("yes", "action"),
        ({"action": "edit"}, "needs the text"),
        ({"action": "approve", "answer": "mine"}, "takes no answer"),
        ({"action": "edit", "reflection": "x"}, "reflection"),
        ({"action": "edit", "answer": " "}, "needs the text"),
        (7, "decision on attempt 1"),
    ],
)
async def test_what_is_no_decision_is_refused_and_can_be_given_again(passes, decision, says):
    async with passes.agent(review="answer") as agent:
        with pytest.raises(ReviewPending):
            await agent.run(TASK, thread="t")
        with pytest.raises(ConfigurationError, match=says):
            await agent.run(thread="t", decision=decision)
        assert (await agent.run(thread="t", decision="approve")).passed


async def test_fields_that_a_form_leaves_empty_say_nothing(passes):
    async with passes.agent(review="answer") as agent:
        empty = {"action": "approve", "answer": "", "feedback": None}
        assert (await agent.run(TASK, reviewer=lambda _: empty)).answer == "answer 1"


async def test_a_bad_answer_to_the_graph_itself_leaves_the_interrupt_open(passes):
    async with passes.agent(review="answer") as agent:
        config = {"configurable": {"thread_id": "t"}}
        state = await agent.graph.ainvoke({"task": TASK}, config)
        form = state["__interrupt__"][0].response_schema
        assert (list(form["properties"]), form["required"]) == (["action", "answer", "feedback"], ["action"])
        assert {field["type"] for field in form["properties"].values()} == {"string"}
        with pytest.raises(ValueError, match="action"):
            await agent.graph.ainvoke(Command(resume={"action": "yes"}), config)
        state = await agent.graph.ainvoke(Command(resume={"action": "approve"}), config)
    assert state["stop_reason"] == "passed"


async def test_a_decision_where_nothing_waits_is_refused(passes):
    async with passes.agent() as agent:
        await agent.run(TASK, thread="t")
        with pytest.raises(ConfigurationError, match="waits for no review"):
            await agent.run(TASK, thread="t", decision="approve")


async def test_a_decision_with_another_task_than_the_one_that_waits_is_refused(passes):
    async with passes.agent(review="answer") as agent:
        with pytest.raises(ReviewPending):
            await agent.run(TASK, thread="t")
        with pytest.raises(ConfigurationError, match="another task"):
            await agent.run("Sort a list.", thread="t", decision="approve")
        with pytest.raises(ConfigurationError, match="needs the thread"):
            await agent.run(decision="approve")
        assert (await agent.run(TASK, thread="t", decision="approve")).passed


async def test_another_task_on_a_thread_that_waits_begins_a_new_run(passes):
    async with passes.agent(review="answer") as agent:
        with pytest.raises(ReviewPending):
            await agent.run(TASK, thread="t")
        result = await agent.run("Sort a list.", thread="t", reviewer=lambda _: "approve")
        assert (result.passed, result.answer) == (True, "answer 2")
        with pytest.raises(ConfigurationError, match="nothing unfinished"):
            await agent.run(thread="t", decision="approve")


async def test_cancelling_while_the_reviewer_thinks_ends_the_run(passes):
    asked = asyncio.Event()

    async def thinks_for_ever(_):
        asked.set()
        await asyncio.Event().wait()

    async with passes.agent(review="answer") as agent:
        running = asyncio.create_task(agent.run(TASK, thread="t", reviewer=thinks_for_ever))
        await asked.wait()
        assert await agent.cancel("t")
        result = await running
    assert (result.stop_reason, result.answer) == ("cancelled", "answer 1")


async def test_what_the_run_was_told_outlives_the_review_though_nobody_says_it_again(bench: Bench):
    async with bench.agent() as agent:
        config = {"configurable": {"thread_id": "t"}}
        context = bench.settings(review="attempt", budget_requests=6, max_attempts=9)
        state = await agent.graph.ainvoke({"task": TASK}, config, context=context)
        while "__interrupt__" in state:
            state = await agent.graph.ainvoke(Command(resume="approve"), config)
    assert state["stop_reason"] == "budget"
    assert bench.server.count == 6


async def test_a_run_that_goes_on_has_all_the_attempts_that_it_was_given(bench: Bench):
    async with bench.agent(max_attempts=1) as agent:
        with pytest.raises(ReviewPending):
            await agent.run(TASK, thread="t", review="attempt", max_attempts=9)
        result = await agent.run(thread="t", reviewer=lambda _: "approve")
    assert (result.stop_reason, len(result.attempts)) == ("max_attempts", 9)
    assert "no attempt of 9" in result.stop_detail


async def test_a_smaller_limit_of_steps_from_outside_still_ends_well(bench: Bench):
    async with bench.agent(review="both", max_attempts=9) as agent:
        config = {"configurable": {"thread_id": "t"}, "recursion_limit": 12}
        state = await agent.graph.ainvoke({"task": TASK}, config)
        while "__interrupt__" in state:
            state = await agent.graph.ainvoke(Command(resume="approve"), config)
    assert state["stop_reason"] == "max_attempts"
    assert state["answer"] == "answer 1"
