"""Circuits shared through a real Redis by processes that know nothing of each other."""

import asyncio
import contextlib
import json
import logging
import subprocess
import sys

import pytest
from redis.asyncio import Redis

from reflexion.models.breaker import Breaker
from reflexion.models.circuit import BreakerPolicy
from reflexion.models.errors import ModelError
from reflexion.models.exchange import Exchange
from reflexion.models.redis_breaker import RedisCircuits

POLICY = BreakerPolicy(consecutive=3)
OPEN_S = POLICY.first_open_s
LEASE_S = 1.5
MODEL = "http://127.0.0.1:1/v1", "m"

# Each line that a process reads is a command, each line that it writes an answer.
PROCESS = """
import asyncio, sys
from reflexion.models.circuit import BreakerPolicy
from reflexion.models.redis_breaker import RedisCircuits

key = "http://127.0.0.1:1/v1", "m"

now = 0.0

async def main():
    global now
    held = []
    while True:
        line = await asyncio.to_thread(sys.stdin.readline)
        match line.split():
            case ["share", url, prefix, lease_s]:
                held.clear()
                circuits = RedisCircuits(url, BreakerPolicy(consecutive=3), prefix=prefix, lease_s=float(lease_s),
                                         patience_s=60, clock=lambda: now)
                print(await circuits.states(), flush=True)
            case ["now", seconds]:
                now = float(seconds)
                print("", flush=True)
            case ["begin", number]:
                steps = await asyncio.gather(*(circuits.enter(key) for _ in range(int(number))))
                admitted = [step.epoch for step in steps if step.epoch is not None]
                held += admitted
                print(len(admitted), flush=True)
            case ["end", verdict]:
                await asyncio.gather(*(circuits.leave(key, epoch, verdict, "from afar") for epoch in held))
                held.clear()
                print((await circuits.states())[0].state, flush=True)
            case _:
                return

asyncio.run(main())
"""


class Process:
    """Another process that enters and leaves the shared circuit."""

    def __init__(self):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([sys.executable, "-c", PROCESS], stdin=pipe, stdout=pipe, text=True, bufsize=1)

    async def tell(self, command):
        return await asyncio.to_thread(self._tell, command)

    def _tell(self, command):
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def die(self):
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def processes():
    """Kept from test to test, as each takes seconds to import all."""
    running = []
    yield running
    for process in running:
        process.die()


@pytest.fixture
async def two(redis_url, prefix, processes):
    while len(processes) < 2:
        processes.append(Process())
    await it_is(1000, processes)
    command = f"share {redis_url} {prefix} {LEASE_S}"
    assert await asyncio.gather(*(process.tell(command) for process in processes)) == ["[]", "[]"]
    return processes


async def it_is(now, processes):
    """Set the clock of all, which Redis uses instead of its own."""
    await asyncio.gather(*(process.tell(f"now {now}") for process in processes))


@pytest.fixture
async def circuits(redis_url, prefix):
    circuits = RedisCircuits(redis_url, POLICY, prefix=prefix, lease_s=LEASE_S, patience_s=60)
    yield circuits
    await circuits.aclose()


async def open_up(process):
    assert await process.tell("begin 3") == "3"
    assert await process.tell("end fault") == "open"


async def test_faults_seen_by_one_process_keep_the_other_away(two, redis_url, prefix):
    one, other = two
    circuits = RedisCircuits(redis_url, POLICY, prefix=prefix, patience_s=60, clock=lambda: 1000.0)
    breaker = Breaker(circuits)
    assert await other.tell("begin 1") == "1"
    await open_up(one)
    assert await other.tell("begin 20") == "0"
    with pytest.raises(ModelError, match=r"3 of 3 requests failed.*the last fault: from afar"):
        async with breaker.around(Exchange(endpoint=MODEL[0], model=MODEL[1])):
            pass
    assert await other.tell("end reply") == "open", "a late result"
    await circuits.aclose()


async def test_two_processes_together_send_one_probe_and_its_reply_lets_both_through(two):
    one, other = two
    await open_up(one)
    await it_is(1000 + OPEN_S, two)
    admitted = await asyncio.gather(one.tell("begin 25"), other.tell("begin 25"))
    assert sorted(admitted) == ["0", "1"]
    prober, waiting = two if admitted[0] == "1" else (other, one)
    assert await waiting.tell("begin 5") == "0"
    assert await prober.tell("end reply") == "closed"
    assert await waiting.tell("begin 5") == "5"


async def test_a_probe_that_takes_longer_than_its_lease_keeps_its_place(two, redis_url, prefix):
    one, other = two
    await open_up(one)
    await it_is(1000 + OPEN_S, two)
    assert await one.tell("begin 1") == "1"
    for lease in (1, 2):
        now = 1000 + OPEN_S + 0.9 * lease * LEASE_S
        await it_is(now, two)
        await until_renewed(redis_url, prefix, now)
        assert await other.tell("begin 1") == "0"
    assert await one.tell("end reply") == "closed"


async def until_renewed(url, prefix, now):
    """Wait until the holder of the probe has prolonged its lease."""
    async with Redis.from_url(url) as redis, asyncio.timeout(60):
        [name] = [name async for name in redis.scan_iter(match=f"{prefix}*")]
        while json.loads(await redis.get(name))["probe_until"] <= now + 0.9 * LEASE_S:  # noqa: ASYNC110 - Redis sets no event
            await asyncio.sleep(0.01)


async def test_the_probe_of_a_process_that_died_leaves_its_place_when_its_lease_ends(two):
    one, other = two
    await open_up(one)
    await it_is(1000 + OPEN_S, two)
    assert await one.tell("begin 1") == "1"
    assert await other.tell("begin 1") == "0"
    one.die()
    two.remove(one)
    await it_is(1000 + OPEN_S + 0.9 * LEASE_S, two)
    assert await other.tell("begin 1") == "0"
    await it_is(1000 + OPEN_S + 2 * LEASE_S, two)
    assert await other.tell("begin 5") == "1"
    assert await other.tell("end reply") == "closed"


async def test_the_result_of_a_probe_that_lost_its_place_changes_nothing(redis_url, prefix):
    now = 1000.0
    circuits = RedisCircuits(redis_url, POLICY, prefix=prefix, lease_s=100, patience_s=60, clock=lambda: now)
    for epoch in [(await circuits.enter(MODEL)).epoch for _ in range(3)]:
        await circuits.leave(MODEL, epoch, "fault", "")
    now += 15
    first = await circuits.enter(MODEL)
    now += 101
    second = await circuits.enter(MODEL)
    assert first.epoch is not None
    assert second.epoch not in {None, first.epoch}
    assert (await circuits.leave(MODEL, first.epoch, "reply", "")).after.state == "half_open"
    assert (await circuits.leave(MODEL, second.epoch, "reply", "")).after.state == "closed"
    await circuits.aclose()


async def test_a_forgotten_circuit_takes_no_result_of_its_former_life(redis_url, prefix, circuits):
    epoch = (await circuits.enter(MODEL)).epoch
    async with Redis.from_url(redis_url) as redis:
        assert await redis.delete(*[name async for name in redis.scan_iter(match=f"{prefix}*")]) == 1
    await asyncio.sleep(1.1)
    for _ in range(3):
        await circuits.enter(MODEL)
        await circuits.leave(MODEL, epoch, "fault", "")
    assert [seen.state for seen in await circuits.states()] == ["closed"]


async def test_a_result_counts_even_when_its_caller_is_cancelled_while_telling(circuits):
    for epoch in [(await circuits.enter(MODEL)).epoch for _ in range(3)]:
        telling = asyncio.create_task(circuits.leave(MODEL, epoch, "fault", "half a \ud800 letter"))
        await asyncio.sleep(0)
        telling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await telling
    await asyncio.gather(*circuits._leaving)
    assert [seen.state for seen in await circuits.states()] == ["open"]


async def test_without_redis_each_process_keeps_its_own_circuits_and_says_so_once(closed_port, caplog):
    circuits = RedisCircuits(f"redis://127.0.0.1:{closed_port}", POLICY, patience_s=60)
    with caplog.at_level(logging.WARNING):
        for epoch in [(await circuits.enter(MODEL)).epoch for _ in range(3)]:
            await circuits.leave(MODEL, epoch, "fault", "")
        assert (await circuits.enter(MODEL)).after.state == "open"
    await circuits.aclose()
    assert "not shared" in caplog.text
    assert len(caplog.records) == 1


async def test_a_redis_that_says_nothing_holds_up_no_request(circuits):
    async def silent(reader, writer):
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        # One after the other, or in groups, they would take at least half a minute.
        apart = RedisCircuits(f"redis://127.0.0.1:{port}", POLICY, patience_s=1)
        async with asyncio.timeout(25):
            steps = await asyncio.gather(*(apart.enter(MODEL) for _ in range(500)))
        await apart.aclose()
    assert all(step.epoch is not None for step in steps)


async def test_many_requests_at_once_all_share_one_circuit(circuits, caplog):
    with caplog.at_level(logging.WARNING):
        steps = await asyncio.gather(*(circuits.enter(MODEL) for _ in range(300)))
        await asyncio.gather(*(circuits.leave(MODEL, step.epoch, "reply", "") for step in steps))
    assert caplog.records == []
    assert [seen.requests for seen in await circuits.states()] == [300]


def test_circuits_outlive_the_event_loop_in_which_they_were_used(redis_url, prefix):
    circuits = RedisCircuits(redis_url, POLICY, prefix=prefix, patience_s=60)

    async def use():
        step = await circuits.enter(MODEL)
        await circuits.leave(MODEL, step.epoch, "reply", "")
        states = await circuits.states()
        await circuits.aclose()
        return states[0].requests

    assert [asyncio.run(use()), asyncio.run(use())] == [1, 2]
