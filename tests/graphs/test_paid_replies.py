"""A reply that was had and recorded is not paid for again, even if its process died before it could be used."""

import sqlite3

import psycopg
import pytest
from broken_off import TASK, Child
from langchain_core.messages import HumanMessage, SystemMessage
from loop_bench import ROLES, Bench

from reflexion.memory import open_persistence
from reflexion.models.exchange import Exchange, unsent_call
from reflexion.models.kept import LARGEST, KeptReplies, kept_reply
from reflexion.models.ledger import LedgerLine
from reflexion.models.replies import Reply
from reflexion.prompts.marks import Marks

NEEDED = {"actor": 2, "critic": 2, "reflector": 1, "planner": 1}
NODE = {"critic": "evaluator"}


def killed_after_its_reply(bench: Bench, role: str) -> None:
    """Kill a run's process after a role's first reply is in the ledger, and before the step has left any trace."""
    child = Child(bench.server.base_url, bench.url, "t", f"after {NODE.get(role, role)}", "task")
    try:
        assert child.says() == "held"
    finally:
        child.kill()


def resumed(bench: Bench) -> dict:
    return Child(bench.server.base_url, bench.url, "t", "", "task").says()


@pytest.mark.parametrize("role", ROLES)
def test_a_process_killed_between_reply_and_checkpoint_costs_nothing(server, sqlite_url, role):
    check(Bench(server, sqlite_url), role)


@pytest.mark.parametrize("role", ["critic"])
def test_a_process_killed_between_reply_and_checkpoint_costs_nothing_in_postgresql(server, postgres_url, role):
    check(Bench(server, postgres_url), role)


def check(bench: Bench, role: str) -> None:
    killed_after_its_reply(bench, role)
    assert bench.counts()[role] == 1
    result = resumed(bench)
    assert bench.counts() == NEEDED
    assert (result["stop_reason"], len(result["attempts"])) == ("max_attempts", 2)
    assert [attempt["answer"] for attempt in result["attempts"]] == ["answer 1", "answer 2"]
    assert (result["usage"]["requests"], result["usage"]["estimated"]) == (bench.server.count, False)


def test_several_deaths_at_the_same_reply_cost_nothing_either(bench):
    for _ in range(3):
        killed_after_its_reply(bench, "critic")
    resumed(bench)
    assert bench.counts() == NEEDED


def test_of_two_replies_of_a_step_the_one_that_was_had_is_not_asked_for_again(bench):
    """The critic's first reply cannot be read, and the process dies while it is asked once more."""

    def unreadable(_: dict) -> str:
        bench.server.hold("critic-m")
        return "no verdict"

    bench.server.script("critic-m", unreadable)
    child = Child(bench.server.base_url, bench.url, "t", "", "task")
    bench.server.wait_for("critic-m", 2, timeout_s=100)
    child.kill()
    bench.server.release("critic-m")
    result = resumed(bench)
    assert bench.counts() == NEEDED | {"critic": 4}
    assert result["usage"]["requests"] == bench.server.count


def test_a_reply_to_another_question_is_not_taken(bench):
    killed_after_its_reply(bench, "actor")
    child = Child(bench.server.base_url, bench.url, "t", "", "code")
    assert "answer 1" not in str(child.says()["attempts"])


async def test_what_is_kept_is_gone_when_the_run_has_ended_or_nobody_goes_on_with_it(bench):
    def stored() -> str:
        with sqlite3.connect(bench.url.removeprefix("sqlite:///")) as connection:
            return str(connection.execute("SELECT reply FROM reflexion_ledger WHERE reply IS NOT NULL").fetchall())

    killed_after_its_reply(bench, "actor")
    assert "answer 1" in stored()
    async with bench.agent() as agent:
        await agent.run("Reverse a text.", thread="t", max_attempts=1)
        assert stored() == "[]"
        await agent.run(TASK, thread="another", max_attempts=1)
        assert stored() == "[]"


async def test_what_nobody_asks_for_is_gone_after_a_week(durable_url):
    now = 1_000_000.0
    async with open_persistence(durable_url) as database:
        ledger = database.ledger
        ledger._now = lambda: now
        request = Exchange(endpoint="", model="m", run_id="r")
        line = LedgerLine(
            **unsent_call(request, "ok"), run_id="r", thread_id="t", batch_id="", endpoint="", retry=0, started_at=now
        )
        await ledger.write(line, kept_reply("k", Reply("text 😀")))
        now += 6 * 24 * 3600
        await ledger.prune()
        assert [reply["text"] for reply in await ledger.replies("r")] == ["text 😀"]
        now += 2 * 24 * 3600
        await ledger.prune()
        assert (await ledger.replies("r"), len(await ledger.lines())) == ([], 1)


async def test_a_ledger_of_an_earlier_version_gets_its_column(sqlite_url):
    async with open_persistence(sqlite_url):
        pass
    with sqlite3.connect(sqlite_url.removeprefix("sqlite:///")) as connection:
        connection.execute("DROP INDEX reflexion_ledger_reply")
        connection.execute("ALTER TABLE reflexion_ledger DROP COLUMN reply")
    async with open_persistence(sqlite_url) as database:
        assert await database.ledger.replies("r") == []


@pytest.mark.parametrize(
    "older",
    [
        ["ALTER TABLE reflexion_ledger DROP COLUMN reply"],  # takes the index with it
        ["DROP INDEX reflexion_ledger_reply"],  # its process was killed in between
    ],
)
async def test_a_ledger_of_an_earlier_version_gets_its_column_in_postgresql(postgres_url, older):
    async with open_persistence(postgres_url):
        pass
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for sql in older:
            connection.execute(sql)
    async with open_persistence(postgres_url) as database:
        assert await database.ledger.replies("r") == []
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT to_regclass('reflexion_ledger_reply') IS NOT NULL").fetchone() == (True,)


def test_a_question_is_known_again_whatever_its_marks_and_each_reply_serves_once():
    def question(step: str, task: str = "Sum [1, 2]") -> str:
        messages = [SystemMessage("Judge."), HumanMessage(Marks().around("task", task))]
        return KeptReplies.of(step, []).key("critic", messages, None)

    key = question("step 1")
    assert question("step 1") == key
    assert len({key, question("step 2"), question("step 1", "Sum [1, 3]")}) == 3
    assert question("step 1", "See <commit 01234567>") != question("step 1", "See <commit 89abcdef>")
    kept = [kept_reply(key, Reply(text, truncated=text == "b", arguments={"n": 1})) for text in "ab"]
    mine = KeptReplies.of("step 1", kept)
    taken = [mine.take(key) for _ in range(3)]
    assert taken == [Reply("a", arguments={"n": 1}), Reply("b", truncated=True, arguments={"n": 1}), None]


def test_a_reply_that_is_too_long_is_not_kept():
    assert kept_reply("k", Reply("x" * LARGEST)) is None
