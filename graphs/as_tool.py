"""The agent as a tool of another agent."""

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.config import get_stream_writer
from pydantic import BaseModel, Field, ValidationError

from reflexion.graphs.agent import Reflexion
from reflexion.graphs.result import Result, result_of
from reflexion.graphs.reviewing import ReviewPending
from reflexion.graphs.run import Event
from reflexion.memory.locks import ThreadBusy
from reflexion.nodes import make_settings
from reflexion.nodes.recall import read_task
from reflexion.nodes.settings import ConfigurationError, explain
from reflexion.nodes.turn import StopReason

DESCRIPTION = (
    "Hand over one task whose result can be checked, such as code with tests or a question with a known form of "
    "answer. It is attempted, checked and attempted again with what was learned until it passes. Returns the best "
    "answer, and says so where that did not pass."
)

SAYS_SOMETHING: frozenset[StopReason] = frozenset({"passed", "max_attempts", "plateau"})
"""A call that ended otherwise was broken off: the same call, made again, is worked on again."""

WAIT_S = 3_600.0
"""How long a call waits for the one before on the same thread, in seconds."""


class Arguments(BaseModel):
    """What the other agent's model fills in."""

    task: str = Field(
        min_length=1,
        description="What to do, complete in itself: nothing else of this conversation is seen.",
    )
    tests: str = Field(
        default="",
        description="For code: Python tests that a right answer passes, as plain asserts. Leave empty with `expect`.",
    )
    expect: str = Field(
        default="",
        description="For text: the expected answer, or its form as re:PATTERN, num:3.14±0.01 or json:{JSON schema}.",
    )
    criteria: list[str] = Field(
        default_factory=list,
        description="What else the answer is judged by, each in a sentence.",
    )


def as_tool(
    agent: Reflexion,
    *,
    name: str = "reflexion",
    description: str = DESCRIPTION,
    thread: str | None = None,
    **settings: Any,
) -> BaseTool:
    """The agent as a tool: the answer is the content, the whole result as JSON the artifact.

    Its lessons, threads and ledger stay in the agent's own database. What it does comes through the custom
    stream of the graph around it, each event with the tool's name. A call that the graph around it repeats,
    after a crash or an interrupt, goes on where it was, and one that was finished is not made again.

    Args:
        agent: open while the tool is used, except by code that is not async.
        name: what the other agent's model calls it.
        description: when the model is to use it.
        thread: of all calls, which are then made in turn and share reflections; None for one of its own per call.
        **settings: fields of `Settings` for its runs, such as a budget per call.

    Raises:
        ConfigurationError: a setting is unknown or impossible; by a call, where a price is unknown.
        ModelConfigurationError: by a call, where a role has no usable model.
    """
    make_settings(agent.settings, **settings)

    async def call(config: RunnableConfig, **arguments: Any) -> tuple[str, dict[str, Any]]:
        _check(arguments)
        own = thread or _thread_of(config, name, arguments)
        result = None if thread else await _finished(agent, own)
        return _reply(result or await _run(agent, name, own, {**arguments, **settings}))

    def call_sync(config: RunnableConfig, **arguments: Any) -> tuple[str, dict[str, Any]]:
        _check(arguments)
        own = thread or _thread_of(config, name, arguments)
        with _waiting_as_advice():
            return _reply(agent.run_sync(thread=own, wait_s=WAIT_S, **arguments, **settings))

    return StructuredTool(
        name=name,
        description=description,
        args_schema=Arguments,
        func=call_sync,
        coroutine=call,
        response_format="content_and_artifact",
        handle_tool_error=True,
        handle_validation_error=_mend,
    )


async def _run(agent: Reflexion, name: str, thread: str, arguments: dict[str, Any]) -> Result:
    tell = _listener(name, thread)
    events = agent.stream(thread=thread, wait_s=WAIT_S, **{"stream": agent.settings.stream} | arguments)
    with _waiting_as_advice():
        async with aclosing(events):
            async for event in events:
                if event["event"] == "result":
                    result: Result = event["result"]
                    return result
                tell(event)
    raise AssertionError("a run ends with its result")


def _listener(name: str, thread: str) -> Callable[[Event], None]:
    """Passes events on to the custom stream of the graph around the tool, where there is one."""
    try:
        write = get_stream_writer()
    except (RuntimeError, KeyError):  # nothing around it
        return lambda event: None
    return lambda event: write({"tool": name, "thread_id": thread, **event})


def _thread_of(config: RunnableConfig, name: str, arguments: dict[str, Any]) -> str:
    """The same for the same call of the same step of a graph, else a new one."""
    around = config.get("configurable", {})
    step = around.get("checkpoint_ns")  # ends with the step's id, which outlives a crash
    if not step:
        return str(uuid.uuid4())
    call = json.dumps([around.get("thread_id"), step, name, arguments], sort_keys=True, default=str)
    return str(uuid.uuid5(uuid.NAMESPACE_OID, call))


async def _finished(agent: Reflexion, thread: str) -> Result | None:
    """The result of a call that was made before; None where there is none that says anything."""
    state = await agent.graph.aget_state({"configurable": {"thread_id": thread}})
    if state.tasks or state.values.get("stop_reason") not in SAYS_SOMETHING:
        return None
    return result_of(state.values, thread)  # type: ignore[arg-type]


def _reply(result: Result) -> tuple[str, dict[str, Any]]:
    """Content and artifact.

    Raises:
        ToolException: there is no answer.
    """
    if not result.answer:
        raise ToolException(
            f"No answer: {result.stop_reason} ({result.stop_detail}). Go on without it, or give an easier task."
        )
    if result.passed:
        return result.answer, result.as_json()
    feedback = next(attempt.feedback for attempt in result.attempts if attempt.answer == result.answer)
    note = f"This answer did not pass: {result.stop_reason} ({result.stop_detail}). {feedback}"
    return f"{result.answer}\n\n[{note.strip()}]", result.as_json()


def _check(arguments: dict[str, Any]) -> None:
    """Tell the model of a task that nobody can work on. What else is wrong with a configuration is not its to mend."""
    try:
        read_task(arguments)  # type: ignore[arg-type]
    except ConfigurationError as error:
        raise ToolException(f"The task cannot be begun: {error}. Mend the arguments and call again.") from error


@contextmanager
def _waiting_as_advice() -> Iterator[None]:
    try:
        yield
    except ThreadBusy as error:
        raise ToolException(f"{error} Call again later.") from error
    except ReviewPending as error:
        raise ToolException(f"{error}. Only a person can decide that: go on without it.") from error


def _mend(error: ValidationError | Any) -> str:
    why = explain(error) if isinstance(error, ValidationError) else str(error)
    return f"The arguments cannot be used: {why}. Mend them and call again."
