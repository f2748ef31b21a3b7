"""Real tasks with their recorded lessons, and real tasks asked for in other words; see `recall_quality.py`.

DATA is a folder with `tasks` (HumanEval.jsonl.gz, mbpp_test500.jsonl, mbpp-py.jsonl, mbppplus_trim.jsonl,
hotpotqa_100_gold_context.jsonl, hotpot_dev_simplified_500.json, alfworld_tasks_134.json, gsm8k_test200.jsonl) and
`recorded` (the Reflexion paper's runs: humaneval_runs.jsonl, mbpp_reflexion_*.jsonl, hotpot_*_reflexion*.jsonl). Its
reflections on AlfWorld are left out: their log numbers the tasks otherwise than the list does.
"""

import ast
import gzip
import hashlib
import json
import random
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PARAPHRASES = Path(__file__).parent / "data" / "mbpp_paraphrases.jsonl"
SHORTEST_PROSE = 30
"""Characters: some docstrings say nothing but examples."""


@dataclass
class Task:
    id: str
    family: str
    text: str
    lessons: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Asked:
    """A task as it is asked for, and the stored one that it is."""

    kind: str
    text: str
    own: str
    without: str = ""
    """A family that is not stored while this is asked."""

    @property
    def chooses(self) -> bool:
        """Whether it belongs to the half on which weight and thresholds are chosen; the other half is reported."""
        return hashlib.sha256(self.own.encode()).digest()[0] % 2 == 0


def lines(file: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(file, "rt") if file.suffix == ".gz" else file.open(encoding="utf-8") as text:
        yield from map(json.loads, text)


def stored(data: Path) -> dict[str, Task]:
    """Some 1,700 tasks by id, and the lessons that recorded runs have drawn from 330 of them.

    Of tasks in the same words the first stands for all: memory takes them for one task, too.
    """
    tasks = [Task(t["task_id"], "HumanEval", t["prompt"]) for t in lines(data / "tasks" / "HumanEval.jsonl.gz")]
    mbpp = {mbpp_id(t["name"]): sentence(t["prompt"]) for t in lines(data / "tasks" / "mbpp-py.jsonl")}
    mbpp |= {f"MBPP/{t['task_id']}": t["prompt"] for t in lines(data / "tasks" / "mbpp_test500.jsonl")}
    tasks += [Task(key, "MBPP", text) for key, text in mbpp.items()]
    questions = [t["question"] for t in lines(data / "tasks" / "hotpotqa_100_gold_context.jsonl")]
    questions += [t["question"] for t in json.loads((data / "tasks" / "hotpot_dev_simplified_500.json").read_text())]
    questions += [run["question"] for run in hotpot(data)]
    tasks += [Task(text, "HotPotQA", text) for text in dict.fromkeys(questions)]
    rooms = json.loads((data / "tasks" / "alfworld_tasks_134.json").read_text())
    tasks += [Task(f"env_{n}", "AlfWorld", goal(t["goal"])) for n, t in enumerate(rooms)]
    tasks += [Task(t["question"], "GSM8K", t["question"]) for t in lines(data / "tasks" / "gsm8k_test200.jsonl")]
    tasks += [Task(f"German {t['task_id']}", "German", t["german"]) for t in lines(PARAPHRASES)]
    first: dict[str, Task] = {}
    known = {task.id: first.setdefault(flat(task.text), task) for task in tasks}
    for key, lesson in recorded(data):
        if key in known and lesson.strip() not in known[key].lessons:
            known[key].lessons.append(lesson.strip())
    return known


def recorded(data: Path) -> Iterator[tuple[str, str]]:
    """The reflections of the Reflexion paper's runs, with the id of their task."""
    folder = data / "recorded"
    yield from ((run["task_id"], text) for run in lines(folder / "humaneval_runs.jsonl") for text in run["reflections"])
    for file in sorted(folder.glob("mbpp_reflexion_*.jsonl")):
        yield from ((mbpp_id(run["task_id"]), text) for run in lines(file) for text in run["reflections"])
    for run in hotpot(data):
        yield from ((run["question"], text) for trial in run["trials"] for text in trial["reflections_in_context"])


def hotpot(data: Path) -> Iterator[dict[str, Any]]:
    for file in sorted((data / "recorded").glob("hotpot_*_reflexion*.jsonl")):
        yield from lines(file)


def asked(data: Path, tasks: dict[str, Task], seed: int = 1) -> list[Asked]:
    """Tasks in their own words and in others; a kind is a row of the table."""
    distinct = list({id(task): task for task in tasks.values()}.values())
    own_words = random.Random(seed).sample([t for t in distinct if t.family != "German"], 400)
    found = [Asked("the same words", task.text, task.id) for task in own_words]
    found += [
        Asked("HumanEval, docstring's prose", text, task.id)
        for task in distinct
        if task.family == "HumanEval" and len(text := prose(task.text)) > SHORTEST_PROSE
    ]
    for t in lines(data / "tasks" / "mbppplus_trim.jsonl"):
        key, text = t["task_id"].replace("Mbpp", "MBPP"), sentence(t["prompt"])
        if key in tasks and flat(text) != flat(tasks[key].text):
            found.append(Asked("MBPP, reworded by EvalPlus", text, tasks[key].id))
    typed = lines(data / "tasks" / "mbpp-py.jsonl")
    found += [Asked("MBPP, with signature", t["prompt"], tasks[mbpp_id(t["name"])].id) for t in typed]
    errands = defaultdict(list)
    for task in distinct:
        if task.family == "AlfWorld":
            errands[task.text.rpartition("Your task is to: ")[2].strip()].append(task.id)
    found += [Asked("AlfWorld, without the room", text, ids[0]) for text, ids in errands.items() if len(ids) == 1]
    for t in lines(PARAPHRASES):
        english, german = tasks[f"MBPP/{t['task_id']}"].id, tasks[f"German {t['task_id']}"].id
        found.append(Asked("MBPP, paraphrased", t["english"], english))
        found.append(Asked("German, paraphrased", t["german_again"], german, without="MBPP"))
        found.append(Asked("German, stored in English", t["german"], english, without="German"))
    return found


def mbpp_id(name: str) -> str:
    return f"MBPP/{name.split('_')[1]}"


def goal(text: str) -> str:
    return re.sub(r"___\d+$", "", text)


def flat(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(". ")


def sentence(prompt: str) -> str:
    """What stands between the quotes of a docstring."""
    quotes = re.search(r'("""|\'\'\')(.*?)\1', prompt, re.DOTALL)
    return " ".join((quotes[2] if quotes else prompt).split())


def prose(prompt: str) -> str:
    """What a function's docstring says before its examples."""
    functions = [node for node in ast.parse(prompt + "    pass\n").body if isinstance(node, ast.FunctionDef)]
    text = ast.get_docstring(functions[-1]) or ""
    return text.split(">>>")[0].split("xample")[0].strip()
