"""Runs as the tests of the memory make them up: what they left, without having run."""

from reflexion.memory import Episode, Evidence, Memory, make_lesson, task_key

TASK, RULE = "Sum a list.", "Check the empty list first."
HARD = "Sum what has no sum."
LABEL = "user.name@example.org"


def episode(run: str, *, task: str = TASK, first: bool | None = False, **values) -> Episode:
    made = Episode(
        run_id=run, thread_id="t", task=task, task_key=task_key(task), scores=[1.0 if first else 0.0],
        first_passed=first, passed=bool(first), stop_reason="passed" if first else "max_attempts", cost_usd=None,
        lessons_used=[], lessons_withheld=[], lessons_learned=[], at=0.0,
    )  # fmt: skip
    return made | values


def learned(text: str = RULE, *, task: str = TASK, confirmed: bool = False, created_at: float = 1.0):
    evidence = Evidence(thread_id="t", attempt=1, text=text, evaluator="e", verdict="wrong", confirmed=confirmed)
    return make_lesson(task, text, created_at), evidence


class Clock:
    """Every look at it is a second later."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


async def using(memory: Memory, key: str, *outcomes: bool, name: str = "used", task: str = TASK) -> None:
    for number, passed in enumerate(outcomes):
        await memory.remember(episode(f"{name}-{number}", first=passed, lessons_used=[key], task=task))


async def only(memory: Memory):
    (kept,) = await memory.lessons()
    return kept
