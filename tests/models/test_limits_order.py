"""The order of the queue, under random comings and goings."""

import asyncio

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, precondition, rule

from reflexion.models.queueing import FairQueue, Waiter

AGEING_S = 10.0


class Queue(RuleBasedStateMachine):
    """Calls come, give up and are served; each served one is held against the promises."""

    calls = Bundle("calls")

    def __init__(self):
        super().__init__()
        self.queue = FairQueue(AGEING_S)
        self.now = 0.0
        self.waiting = []
        self.turns = {}
        """By run and priority, when it came to the end of the round, counted in events."""
        self.events = 0
        self.served = []
        """(time, waiter)"""

    @rule(seconds=st.floats(0, 30))
    def wait(self, seconds):
        self.now += seconds

    @rule(target=calls, run=st.sampled_from("abc"), priority=st.integers(-1, 2), count=st.integers(1, 5))
    def come(self, run, priority, count):
        new = [waiter(run, priority, self.now) for _ in range(count)]
        if not any((w.run_id, w.priority) == (run, priority) for w in self.waiting):
            self.to_the_end(run, priority)
        for one in new:
            self.queue.push(one)
        self.waiting += new
        return multiple(*new)

    @rule(call=consumes(calls))
    def give_up(self, call):
        assert self.queue.remove(call) is (call in self.waiting)
        if call in self.waiting:
            self.waiting.remove(call)

    @precondition(lambda self: self.waiting)
    @rule()
    def serve(self):
        head = self.queue.head(self.now)
        same = [w for w in self.waiting if (w.run_id, w.priority) == (head.run_id, head.priority)]
        assert head is same[0], "first come first served within a run"
        assert self.rank(head) == max(self.rank(first) for first in self.firsts())
        self.queue.serve(head, self.now)
        self.waiting.remove(head)
        self.to_the_end(head.run_id, head.priority)
        self.served.append((self.now, head))
        self.nobody_goes_twice_while_another_run_waits(head)

    def to_the_end(self, run, priority):
        self.events += 1
        self.turns[run, priority] = self.events

    def firsts(self):
        """Of each priority, the first call of the run that has been due longest."""
        for priority in {w.priority for w in self.waiting}:
            calls = [w for w in self.waiting if w.priority == priority]
            turn = min(self.turns[w.run_id, priority] for w in calls)
            yield next(w for w in calls if self.turns[w.run_id, priority] == turn)

    def rank(self, one):
        return one.priority + (self.now - one.arrived) / AGEING_S

    def nobody_goes_twice_while_another_run_waits(self, head):
        mine = [i for i, (_, w) in enumerate(self.served) if w.priority == head.priority]
        for other in self.waiting:
            if other.priority != head.priority or other.run_id == head.run_id:
                continue
            since = [i for i in mine if self.served[i][0] > other.arrived]
            last = max((i for i in since if self.served[i][1].run_id == other.run_id), default=-1)
            passed = [i for i in since if i > last and self.served[i][1].run_id == head.run_id]
            assert len(passed) <= 1, "a run was served twice while another waited"

    @invariant()
    def nobody_is_lost(self):
        assert sorted(map(id, self.queue)) == sorted(map(id, self.waiting))
        assert len(self.queue) == len(self.waiting)
        assert bool(self.queue) is bool(self.waiting)
        assert (self.queue.head(self.now) is None) is (not self.waiting)


def waiter(run, priority, now):
    return Waiter(
        id="", run_id=run, priority=priority, tokens=0, arrived=now, expires=now, granted=asyncio.Future(loop=LOOP)
    )


LOOP = asyncio.new_event_loop()
LOOP.close()

TestQueue = Queue.TestCase
TestQueue.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)


def test_no_call_is_passed_over_for_ever():
    """Against a steady stream of higher priority, a call waits for its difference in levels and no longer."""
    queue = FairQueue(AGEING_S)
    low = waiter("low", 0, 0.0)
    queue.push(low)
    for second in range(1000):
        queue.push(waiter(f"run {second}", 3, second))
        head = queue.head(second)
        if head is low:
            break
        queue.serve(head, second)
    assert second == 30


def test_a_run_of_one_waits_for_one_call_of_each_other_run():
    queue = FairQueue(AGEING_S)
    for run in ("a", "b", "c"):
        for _ in range(100):
            queue.push(waiter(run, 0, 0.0))
    queue.push(waiter("single", 0, 1.0))
    order = []
    for now in range(2, 12):
        head = queue.head(now)
        queue.serve(head, now)
        order.append(head.run_id)
    assert order == ["a", "b", "c", "single", "a", "b", "c", "a", "b", "c"]
