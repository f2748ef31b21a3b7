"""Who goes next: priorities, and that nobody starves."""

from hypothesis import given
from hypothesis import strategies as st

from reflexion.batch.queueing import AGEING, MOST_WAITING, Queue


def order(priorities):
    queue = Queue()
    for place, priority in enumerate(priorities):
        queue.put(place, place=place, priority=priority)
    return list(queue.drain())


def test_higher_priorities_go_first_and_equal_ones_in_order():
    assert order([0, 0, 1, 0, 2, 1]) == [4, 2, 5, 0, 1, 3]


def test_a_task_is_overtaken_by_fewer_than_a_hundred_of_one_priority_more():
    queue = Queue()
    queue.put("old", place=0, priority=0)
    taken = []
    for place in range(1, 10 * AGEING):
        queue.put("urgent", place=place, priority=1)
        taken.append(queue.take())
        if taken[-1] == "old":
            break
    assert taken.index("old") == AGEING - 1


@given(st.lists(st.integers(-3, 3), max_size=300))
def test_whatever_the_priorities_each_goes_once_and_none_is_overtaken_from_too_far(priorities):
    taken = order(priorities)
    assert sorted(taken) == list(range(len(priorities)))
    for position, place in enumerate(taken):
        for later in taken[:position]:
            if later > place:
                assert later - place <= (priorities[later] - priorities[place]) * AGEING


def test_the_window_is_bounded_in_tasks_and_in_bytes():
    queue = Queue()
    for place in range(MOST_WAITING):
        assert not queue.full
        queue.put(place, place=place)
    assert queue.full
    large = Queue()
    for place in range(4):
        large.put(place, place=place, size=2**23)
    assert large.full
    large.take()
    assert not large.full
