"""`run_sync`, from wherever it is called."""

import asyncio
import multiprocessing
import threading

import pytest

from reflexion.graphs import ConfigurationError
from reflexion.graphs.sync import run_in_background


@pytest.mark.timeout(100)
class TestRunSync:
    def test_twice_and_then_again_after_an_error(self, bench):
        agent = bench.agent(max_attempts=1)
        assert agent.run_sync("Sum a list.").answer == "answer 1"
        with pytest.raises(ConfigurationError, match="no task"):
            agent.run_sync(" ")
        assert agent.run_sync("Sum a list.").answer == "answer 2"

    async def test_inside_a_running_loop(self, bench):
        assert bench.agent(max_attempts=1).run_sync("Sum a list.").stop_reason == "max_attempts"

    def test_from_two_threads_at_once(self, bench):
        agent = bench.agent(max_attempts=1)
        bench.server.hold("actor-m")
        results = []
        threads = [threading.Thread(target=lambda: results.append(agent.run_sync("Sum a list."))) for _ in range(2)]
        for thread in threads:
            thread.start()
        bench.server.wait_for("actor-m", 2)
        bench.server.release("actor-m")
        for thread in threads:
            thread.join()
        assert [result.stop_reason for result in results] == ["max_attempts"] * 2

    def test_an_interrupt_waits_until_the_run_has_cleaned_up(self, monkeypatch):
        cleaned = threading.Event()

        async def work():
            try:
                await asyncio.Event().wait()
            finally:
                cleaned.set()

        def interrupted(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr("concurrent.futures.Future.result", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_in_background(work)
        assert cleaned.is_set()

    async def test_inside_its_own_loop_it_is_refused_rather_than_waiting_for_itself(self, bench):
        agent = bench.agent(max_attempts=1)

        async def nested():
            return agent.run_sync("Sum a list.")

        with pytest.raises(RuntimeError, match="await `run`"):
            run_in_background(nested)

    def test_in_a_forked_process(self):
        async def work():
            return 1

        assert run_in_background(work) == 1
        with multiprocessing.get_context("fork").Pool(1) as pool:
            assert pool.apply_async(in_child).get(timeout=90) == 2


def in_child():
    async def work():
        return 2

    return run_in_background(work)


async def test_an_agent_that_is_not_open_says_so(bench):
    with pytest.raises(RuntimeError, match="not open"):
        await bench.agent().run("Sum a list.")
