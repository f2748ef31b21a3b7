"""What stands in the input: each line is a task, or one bad record that says why."""

import asyncio
import io
import json
import os

import pytest
from batch_bench import as_line, task

from reflexion.batch import BatchError, Task
from reflexion.batch.reading import LONGEST_LINE, TaskReader
from reflexion.batch.tasks import BadLine, Numbered
from reflexion.graphs import Settings


async def read(tasks, **settings):
    reader = TaskReader(tasks, Settings(**settings))
    found = []
    while chunk := await reader.chunk():
        found += chunk
    reader.close()
    return found


def stream(*lines):
    return io.BytesIO(b"\n".join(as_line(line) for line in lines))


async def test_every_field_of_a_task_is_read():
    given = {
        "id": "a",
        "task": "Say 4.",
        "expect": "4",
        "criteria": ["short"],
        "priority": 3,
        "context": {"threshold": 0.5, "max_attempts": 2},
    }
    (item,) = await read(stream(given))
    assert item.task == Task(**given)
    assert (item.line, item.task.id, item.task.criteria) == (1, "a", ("short",))


async def test_marks_and_ends_of_lines_of_other_systems_and_blank_lines_do_no_harm():
    data = "\ufeff".encode() + json.dumps(task(1)).encode() + b"\r\n\r\n   \n" + json.dumps(task(2)).encode() + b"\r\n"
    items = await read(io.BytesIO(data))
    assert [(item.line, item.task.id) for item in items] == [(1, "t1"), (4, "t2")]


async def test_what_is_missing_or_null_has_its_default_and_a_number_is_an_id():
    items = await read(stream({"task": "a"}, {"task": "b", "id": None, "tests": None, "priority": None}, task(3, id=7)))
    assert [item.task.id for item in items] == ["line-1", "line-2", "7"]
    assert {item.task.priority for item in items} == {0}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("nonsense", "is not JSON"),
        ('{"task": "a"', "is not JSON"),
        ("[1]", "is no object"),
        ('"Say 4."', "is no object"),
        ("null", "is no object"),
        ("[" * 100_000, "is not JSON"),
        ('{"task": "a", "expect": NaN}', "NaN is no JSON"),
        (b'{"task": "\xff"}', "is not UTF-8 at byte 11"),
        ({}, "task missing"),
        ({"task": None}, "task missing"),
        ({"task": " "}, "no task"),
        ({"task": 4}, "task: "),
        ({"task": "a", "tusk": "b"}, "'tusk' is no field of a task"),
        ({"task": "a", "threshold": 0.5}, "what is meant for Settings goes into context"),
        ({"task": "a", "context": {"threshold": 7}}, "threshold: "),
        ({"task": "a", "context": {"thresold": 0.7}}, "thresold: there is no such setting"),
        ({"task": "a", "context": {"review": "both"}}, "nobody is there to review"),
        ({"task": "a", "context": [1]}, "context: "),
        ({"task": "a", "priority": "high"}, "priority: "),
        ({"task": "a", "priority": True}, "priority: "),
        ({"task": "a", "priority": 1000}, "priority: "),
        ({"task": "a", "criteria": [1]}, "criteria"),
        ({"task": "a", "tests": "def ("}, "the tests do not parse"),
        ({"task": "a", "tests": "assert f()", "expect": "4"}, "both tests and an expected answer"),
        ({"task": "a", "expect": "re:("}, "re:"),
        ({"task": "a", "id": {}}, "id: "),
        ({"task": "a", "id": "x" * 1000}, "id: "),
    ],
)
async def test_a_bad_line_says_what_is_wrong_and_the_others_are_read(line, says):
    first, bad, last = await read(stream(task(1), line, task(3)))
    assert isinstance(bad, BadLine)
    assert says in bad.error
    assert len(bad.error) < 1000
    assert (bad.line, first.task.id, last.task.id) == (2, "t1", "t3")


async def test_a_bad_line_keeps_the_id_that_can_be_read():
    bad, nameless = await read(stream({"id": "mine", "task": ""}, {"task": ""}))
    assert (bad.id, nameless.id) == ("mine", "line-2")


async def test_a_line_without_an_end_does_not_fill_the_memory():
    endless = b'{"task": "' + b"a" * (LONGEST_LINE + 10) + b'"}'
    first, bad, last = await read(stream(task(1), endless, task(3)))
    assert "is longer than" in bad.error
    assert (first.line, bad.line, last.line) == (1, 2, 3)


async def test_tasks_may_be_objects_texts_or_come_one_by_one():
    async def later():
        yield task(1)
        await asyncio.sleep(0)
        yield "Say 4."

    for tasks in ([task(1), "Say 4."], iter([Task(**task(1)), "Say 4."]), later()):
        one, two = await read(tasks)
        assert isinstance(one, Numbered)
        assert (one.task.id, two.task.id, two.task.task) == ("t1", "line-2", "Say 4.")


async def test_a_pipe_hands_over_a_task_as_soon_as_it_is_written():
    ours, theirs = os.pipe()
    with os.fdopen(ours, "rb") as reading, os.fdopen(theirs, "wb", buffering=0) as writing:
        reader = TaskReader(reading, Settings())
        assert reader.live
        for number in (1, 2):
            writing.write(as_line(task(number)) + b"\n")
            (item,) = await reader.chunk()
            assert item.task.id == f"t{number}"
        writing.close()
        assert await reader.chunk() == []


@pytest.mark.parametrize("end", ["\n", "\n\n"])
async def test_a_file_is_read_a_piece_at_a_time_and_tells_how_many_tasks_there_will_be(tmp_path, end):
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(task(number)) + end for number in range(10_000)))
    reader = TaskReader(path, Settings())
    first = await reader.chunk()
    assert len(first) < 5_000
    assert 8_000 < reader.expected < 14_000
    while await reader.chunk():
        pass
    assert reader.taken == reader.expected == 10_000
    reader.close()


@pytest.mark.parametrize("tasks", ["in.jsonl", b"x", {"task": "a"}, 4, None])
async def test_what_holds_no_tasks_is_refused(tasks):
    with pytest.raises(BatchError, match="tasks"):
        await read(tasks)


async def test_a_file_that_is_missing_or_a_folder_is_refused(tmp_path):
    for path in (tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(BatchError, match="cannot be read"):
            await read(path)
