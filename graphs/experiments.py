"""A LangSmith dataset as input of a batch, and an experiment as its output."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from langsmith import Client, get_tracing_context, tracing_context
from langsmith.schemas import Example, Run

from reflexion.evaluators import Evaluator, as_langsmith_evaluator
from reflexion.evaluators.langsmith import read_example
from reflexion.graphs.agent import Reflexion
from reflexion.nodes import Settings, make_settings

_OF_RUN = {"budget", "batch", "priority"}
"""Options of `agent.run` that are no settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleResult:
    """What came of one example."""

    example_id: str
    run_id: str
    """Of its trace in LangSmith; the agent's run is a part of that."""
    outputs: Mapping[str, Any]
    """`Result.as_json()`; empty where the run failed."""
    error: str
    """Why the run failed; empty where it did not."""
    scores: Mapping[str, float | None]
    """By the evaluators' keys, and `passed`, `attempts` and `tokens` of the run itself; None: no verdict."""
    comments: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """What came of a dataset."""

    name: str
    url: str | None
    """LangSmith's page; None where nothing was uploaded."""
    results: Sequence[ExampleResult]

    def mean(self, key: str) -> float | None:
        """The mean of the scores under a key; None where there are none."""
        scores = [score for result in self.results if (score := result.scores.get(key)) is not None]
        return sum(scores) / len(scores) if scores else None


def as_target(agent: Reflexion, **options: Any) -> Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]:
    """The agent as target of `langsmith.aevaluate`: an example's inputs in, `Result.as_json()` out.

    The inputs are read as `task`, `tests`, `expect` and `criteria`; what stands in the reference outputs is never
    shown to the agent, only to the evaluators.

    Args:
        agent: open as long as the target is used.
        **options: of `agent.run` (a `budget` that all examples share, `batch`, `priority`), and fields of `Settings`.

    Raises:
        ConfigurationError: a setting is unknown or impossible.
    """
    _settings(agent, options)

    async def reflexion(inputs: dict[str, Any]) -> dict[str, Any]:
        task = read_example(inputs)
        with _nothing_sent_if_local():
            result = await agent.run(task.text, tests=task.tests, expect=task.expect, criteria=task.criteria, **options)
        if not result.attempts:
            raise RuntimeError(f"no attempt was made: {result.stop_reason} ({result.stop_detail})")
        return result.as_json()

    return reflexion


async def evaluate_dataset(
    agent: Reflexion,
    data: str | Sequence[Example],
    *,
    evaluators: Sequence[Evaluator | Callable[..., Any]] = (),
    concurrency: int = 4,
    name: str = "reflexion",
    client: Client | None = None,
    upload: bool = True,
    **options: Any,
) -> Experiment:
    """Run the agent on every example of a dataset as an experiment in LangSmith.

    An example whose run fails has an error in its place; the others go on.

    Args:
        agent: an open one.
        data: a dataset's name or id, or examples.
        evaluators: ours, or functions, which see the reference outputs too; the agent judges its attempts by its own.
        concurrency: how many examples are worked on at once.
        name: of the experiment; LangSmith adds a suffix.
        client: of LangSmith; None for the environment's, which is not needed for examples that are not uploaded.
        upload: whether runs and scores are sent to LangSmith.
        **options: see `as_target`.

    Raises:
        ConfigurationError: a setting is unknown or impossible.
        ValueError: `concurrency` is not positive.
    """
    from langsmith import aevaluate  # noqa: PLC0415 - slow to import

    if concurrency < 1:
        raise ValueError(f"concurrency {concurrency} is no number of examples: 1 or more is needed")
    judges: list[Any] = [_of_the_run, *map(as_langsmith_evaluator, evaluators)]
    rows = await aevaluate(
        as_target(agent, **options),
        data=data,
        evaluators=judges,
        metadata=_settings(agent, options).model_dump(mode="json", exclude_unset=True),
        experiment_prefix=name,
        max_concurrency=concurrency,
        client=client or (None if upload or isinstance(data, str) else _silent_client()),
        upload_results=upload,
    )
    results = [_result(row) async for row in rows]
    return Experiment(name=rows.experiment_name, url=rows.url if upload else None, results=results)


def _settings(agent: Reflexion, options: Mapping[str, Any]) -> Settings:
    return make_settings(agent.settings, **{name: value for name, value in options.items() if name not in _OF_RUN})


def _nothing_sent_if_local() -> AbstractContextManager[None]:
    # An experiment that is not uploaded keeps its own runs local, but not those of LangChain inside of them.
    local = get_tracing_context()["enabled"] == "local"
    return tracing_context(enabled=False, parent=False) if local else nullcontext()


def _silent_client() -> Client:
    """One that never asks a server for anything, not even what it can do."""
    return Client(api_url="http://127.0.0.1:9", api_key="none", info={}, auto_batch_tracing=False)


def _of_the_run(run: Run, example: Example | None) -> dict[str, Any]:
    """What the run says of itself, as feedback."""
    outputs = run.outputs
    if run.error or not outputs:
        return {"results": [{"key": "passed", "score": None, "comment": f"the run failed: {run.error}"}]}
    scores = {
        "passed": float(outputs["passed"]),
        "attempts": len(outputs["attempts"]),
        "tokens": outputs["usage"]["prompt_tokens"] + outputs["usage"]["completion_tokens"],
    }
    return {"results": [{"key": key, "score": score} for key, score in scores.items()]}


def _result(row: Mapping[str, Any]) -> ExampleResult:
    run, given = row["run"], row["evaluation_results"]["results"]
    return ExampleResult(
        example_id=str(row["example"].id),
        run_id=str(run.id),
        outputs={} if run.error else run.outputs,
        error=run.error or "",
        scores={result.key: None if result.score is None else float(result.score) for result in given},
        comments={result.key: result.comment for result in given if result.comment},
    )
