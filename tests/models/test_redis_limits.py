"""Buckets shared through a real Redis: by real processes, killed ones too."""

import asyncio
import json
import signal
import subprocess
import sys
import threading

import ormsgpack
import pytest
import redis
from guards import Clock
from limit_calls import exchange, line, most_over

from reflexion.models.buckets import Claim
from reflexion.models.errors import ModelError
from reflexion.models.limits import Limits, LimitWaitExceeded, RateLimit, redis_backend
from reflexion.models.redis_buckets import RedisBuckets

PROGRAM = """
import asyncio, json, sys
from pathlib import Path
from reflexion.models.exchange import Exchange
from reflexion.models.limits import Limits, RateLimit
from reflexion.models.redis_buckets import RedisBuckets
from reflexion.models.usage import Call

async def one(limit, plan, run):
    request = Exchange(endpoint="http://one/v1", model="m", run_id=run, reply_tokens=plan["tokens"])
    async with limit.around(request):
        print(run, flush=True)
        await asyncio.sleep(plan["takes"])
        request.call = {"prompt_tokens": 0, "completion_tokens": plan["tokens"]}

async def main():
    plan = json.loads(sys.argv[1])
    clock = plan["clock"] and (lambda: float(Path(plan["clock"]).read_text()))
    about = {"prefix": plan["prefix"], "lease_s": plan["lease_s"], "patience_s": 60}
    backend = RedisBuckets(plan["url"], **about, clock=clock)
    limit = RateLimit(Limits(**plan["limits"]), backend=backend)
    await backend.withdraw(("http://warm", "up"), Limits(), "me")
    print("ready", flush=True)
    sys.stdin.readline()
    await asyncio.gather(*(one(limit, plan, plan["name"]) for _ in range(plan["calls"])))

asyncio.run(main())
"""


@pytest.fixture
def start(redis_url, prefix):
    """Start a process that makes so many calls at once, as soon as it is told to."""
    started = []

    def start(*, calls, limits, name="run", tokens=0, takes=0.0, lease_s=30.0, clock=None):
        plan = {
            "url": redis_url,
            "prefix": prefix,
            "calls": calls,
            "limits": limits,
            "name": name,
            "tokens": tokens,
            "takes": takes,
            "lease_s": lease_s,
            "clock": clock and str(clock),
        }
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, json.dumps(plan)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def go(*processes):
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()


class Watch:
    """Redis's own record of the takings that were granted, on its own clock."""

    def __init__(self, url, prefix):
        self._client = redis.Redis.from_url(url, socket_timeout=None)
        self._prefix = prefix
        self._asked = {}
        self.granted = []
        """(server's time, tokens, run) of each call that was let through and ended."""
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self):
        self._thread.start()
        assert self._listening.wait(60)
        return self

    def __exit__(self, *_):
        self._client.set(f"{self._prefix}:end", 1)
        self._thread.join(60)
        assert not self._thread.is_alive()
        self._client.close()
        self.granted.sort()

    def _listen(self):
        with self._client.monitor() as monitor:
            self._listening.set()
            for command in monitor.listen():
                words = command["command"].split(" ", 4)
                if words[0] == "SET" and words[1] == f"{self._prefix}:end":
                    return
                if words[0] != "EVALSHA" or not words[3].startswith(self._prefix):
                    continue
                self._note(command["time"], json.loads("{" + words[4].partition("{")[2].replace('\\"', '"')))

    def _note(self, when, ask):
        """The last time that a call asked, before it was settled, is when it was let through."""
        if ask["what"] == "take":
            self._asked[ask["claim"]["id"]] = when, ask["claim"]["tokens"]
        elif ask["what"] == "settle":
            self.granted.append(self._asked.pop(ask["id"]))


def test_two_processes_together_never_exceed_one_bucket(start, redis_url, prefix):
    limits = {"requests_per_minute": 6000, "burst_requests": 5, "tokens_per_minute": 360_000, "burst_tokens": 500}
    with Watch(redis_url, prefix) as watch:
        both = [start(calls=100, limits=limits, tokens=80, name=name) for name in ("one", "two")]
        go(*both)
        outputs = [process.communicate(timeout=60)[0].split() for process in both]
    assert [len(output) for output in outputs] == [100, 100]
    assert len(watch.granted) == 200
    # MONITOR tells the moment before a command begins: the margin is what 50 ms refill, should Redis wait there.
    per_s = Limits(**limits)
    requests = [(when, 1) for when, _ in watch.granted]
    assert most_over(requests, per_s.requests.per_s, 5) <= 0.05 * per_s.requests.per_s
    assert most_over(watch.granted, per_s.tokens.per_s, 500) <= 0.05 * per_s.tokens.per_s
    took = watch.granted[-1][0] - watch.granted[0][0]
    assert took >= (200 * 80 - 500) / per_s.tokens.per_s - 0.05


class Slots:
    """The slots in Redis, and their leases on a clock that only the test moves."""

    def __init__(self, url, prefix, path):
        self._client = redis.Redis.from_url(url)
        self._key = f'{prefix}:["http://one/v1", "m"]'
        self.path = path
        self.set(1000.0)

    def set(self, now):
        self.now = now
        self.path.with_suffix(".new").write_text(str(now))
        self.path.with_suffix(".new").replace(self.path)

    def read(self):
        return float(self.path.read_text())

    async def held(self, condition):
        """The ids of the calls that hold slots, once there is a state that the condition is true of."""
        async with asyncio.timeout(60):
            while True:
                state = ormsgpack.unpackb(self._client.get(self._key) or b"\x80")
                if state and condition(state):
                    return [taking["id"] for taking in state["held"]]
                await asyncio.sleep(0.01)

    async def others_wait(self):
        await self.held(lambda state: state["heads"])

    async def renewed(self, lease_s):
        """Let almost a lease pass, and wait until the holder has renewed his."""
        self.set(self.now + 0.9 * lease_s)
        return await self.held(lambda state: min(taking["till"] for taking in state["held"]) > self.now + 0.9 * lease_s)

    def close(self):
        self._client.close()


@pytest.fixture
def slots(redis_url, prefix, tmp_path):
    slots = Slots(redis_url, prefix, tmp_path / "now")
    yield slots
    slots.close()


async def test_the_slot_of_a_killed_process_falls_free_and_that_of_a_living_one_does_not(start, slots):
    about = {"calls": 1, "limits": {"concurrency": 1}, "lease_s": 3.0, "clock": slots.path}
    holder = start(**about, takes=1000)
    other = start(**about, name="other")
    go(holder)
    assert holder.stdout.readline() == "run\n"
    go(other)
    await slots.others_wait()
    assert await slots.renewed(3.0) == await slots.renewed(3.0), "the slot of a living process was given to another"
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    slots.set(slots.now + 4.0)
    assert (await asyncio.to_thread(other.communicate, timeout=60))[0] == "other\n"


class Told(RedisBuckets):
    """Buckets that tell when a call has been told to wait."""

    async def take(self, key, limits, claim):
        answer = await super().take(key, limits, claim)
        if not answer.taken:
            self.refused.set()
        return answer


@pytest.fixture
async def guards(redis_url, prefix):
    """Make guards that share buckets as if each were in a process of its own."""
    backends = []

    def make(clock=None, **limits):
        backends.append(Told(redis_url, prefix=prefix, patience_s=60, clock=clock))
        backends[-1].refused = asyncio.Event()
        return RateLimit(Limits(**limits), backend=backends[-1])

    yield make
    for backend in backends:
        await backend.aclose()


async def send(limit, log, request, *, takes=0.0, used=0):
    async with limit.around(request):
        log.append(request.run_id)
        await asyncio.sleep(takes)
        request.call = line(used)


async def begun(guard, log, request):
    """A call that Redis has told to wait, or has let through."""
    refused = guard._buckets.refused = asyncio.Event()
    call = asyncio.create_task(send(guard, log, request))
    waiting = asyncio.create_task(refused.wait())
    await asyncio.wait([call, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    return call


async def test_slots_are_shared(guards):
    one, two = guards(concurrency=3), guards(concurrency=3)
    in_flight, peak, full = 0, 0, asyncio.Event()

    async def call(limit):
        nonlocal in_flight, peak
        async with limit.around(exchange()):
            in_flight += 1
            peak = max(peak, in_flight)
            if in_flight == 3:
                full.set()
            await full.wait()
            await asyncio.sleep(0.02)
            in_flight -= 1

    await asyncio.gather(*(call(limit) for limit in [one, two] * 10))
    assert (peak, in_flight) == (3, 0)


async def test_calls_that_end_together_all_settle(guards, caplog):
    limit = guards(tokens_per_minute=6_000_000, burst_tokens=100_000)
    log, together = [], asyncio.Event()

    async def call():
        request = exchange(tokens=100)
        async with limit.around(request):
            log.append(request)
            if len(log) == 300:
                together.set()
            await together.wait()
            request.call = line(10)

    await asyncio.gather(*(call() for _ in range(300)))
    await send(limit, [], exchange())
    assert caplog.text == ""
    [state] = limit.state()
    assert (state.in_flight, state.tokens_left) == (0, 100_000)


async def test_a_run_in_one_process_does_not_starve_that_of_another(guards):
    limits = {"requests_per_minute": 600, "burst_requests": 1}
    one, two = guards(**limits), guards(**limits)
    log = []
    calls = [asyncio.create_task(send(one, log, exchange("a"))) for _ in range(12)]
    await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    calls.append(await begun(two, log, exchange("b")))
    before = len(log)
    await asyncio.gather(*calls)
    # One call of the other run may be under way when this one has asked, and one goes before it.
    assert log.index("b") <= before + 2 < 12


async def test_a_higher_priority_in_another_process_goes_first(guards):
    clock = Clock()
    limits = {"requests_per_minute": 60, "burst_requests": 1, "clock": clock}
    one, two = guards(**limits), guards(**limits)
    log = []
    await send(one, log, exchange("first"))
    low = await begun(one, log, exchange("low"))
    high = await begun(two, log, exchange("high", priority=1))
    clock.now += 1
    await high
    clock.now += 1
    await low
    assert log == ["first", "high", "low"]


async def test_who_stops_waiting_is_not_in_the_way_of_other_processes(guards):
    clock = Clock()
    limits = {"requests_per_minute": 60, "burst_requests": 1, "clock": clock}
    one, two = guards(**limits), guards(**limits)
    log = []
    await send(one, log, exchange())
    gone = await begun(one, log, exchange(priority=9))
    gone.cancel()
    clock.now += 1  # less than it takes to lose one's place by silence
    await asyncio.wait_for(send(two, log, exchange()), 60)


async def test_what_is_not_used_is_given_back_to_all(guards):
    limits = {"tokens_per_minute": 60, "burst_tokens": 1000}
    one, two, log, clock = guards(**limits), guards(**limits), [], Clock()
    await send(one, log, exchange(tokens=1000), used=50)
    await send(two, log, exchange(tokens=900), used=900)
    impatient = RateLimit(Limits(**limits, max_wait_s=5), backend=one._buckets, clock=clock, sleep=clock.sleep)
    with pytest.raises(LimitWaitExceeded, match="tokens of 60 per minute"):
        await send(impatient, log, exchange(tokens=900))


async def test_a_cancelled_call_settles_in_redis(guards):
    one, two = guards(concurrency=1), guards(concurrency=1)
    inside = asyncio.Event()

    async def stay():
        async with one.around(exchange()):
            inside.set()
            await asyncio.Event().wait()

    call = asyncio.create_task(stay())
    await inside.wait()
    call.cancel()
    await asyncio.wait([call])
    await asyncio.wait_for(send(two, [], exchange()), 20)  # a lease lasts longer


async def test_leases_are_renewed_again_after_a_pause(redis_url, prefix, slots):
    log, end = [], asyncio.Event()
    backends = [RedisBuckets(redis_url, prefix=prefix, lease_s=1.5, patience_s=60, clock=slots.read) for _ in range(2)]
    one, two = (RateLimit(Limits(concurrency=1), backend=backend) for backend in backends)

    async def stay():
        async with one.around(exchange("long")):
            log.append("long")
            await end.wait()

    await send(one, log, exchange("short"))
    long = asyncio.create_task(stay())
    await slots.held(lambda state: state["held"])
    other = asyncio.create_task(send(two, log, exchange("other")))
    await slots.others_wait()
    for _ in range(2):
        await slots.renewed(1.5)
    assert log == ["short", "long"]
    end.set()
    await asyncio.gather(long, other)
    for backend in backends:
        await backend.aclose()


async def test_a_taking_that_is_repeated_takes_nothing_more(redis_url, prefix):
    limits, backend = (
        Limits(requests_per_minute=1, burst_requests=5, concurrency=2),
        RedisBuckets(redis_url, prefix=prefix, patience_s=60),
    )
    key, claim = ("http://one/v1", "m"), Claim(id="a", by="me", tokens=0)
    answers = [await backend.take(key, limits, claim) for _ in range(3)]
    assert [answer.taken for answer in answers] == [True] * 3
    assert 4 <= answers[-1].requests_left < 5
    assert (await backend.take(key, limits, Claim(id="b", by="me", tokens=0))).taken
    assert not (await backend.take(key, limits, Claim(id="c", by="me", tokens=0))).taken
    await backend.aclose()


async def test_keys_expire(guards, redis_url, prefix):
    await send(guards(requests_per_minute=60, tokens_per_minute=60), [], exchange(tokens=600), used=600)
    with redis.Redis.from_url(redis_url) as client:
        [key] = client.scan_iter(match=f"{prefix}*")
        assert 590_000 <= client.pttl(key) <= 700_000


async def test_without_redis_nothing_is_let_through(closed_port):
    limit = RateLimit(
        Limits(requests_per_minute=60), backend=redis_backend(f"redis://:secret@127.0.0.1:{closed_port}/0")
    )
    with pytest.raises(ModelError, match="shared limits in Redis cannot be reached") as caught:
        await send(limit, [], exchange())
    assert caught.value.kind == "connection"
    assert caught.value.retryable
    assert "secret" not in str(caught.value)


def test_a_missing_client_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    monkeypatch.delitem(sys.modules, "reflexion.models.redis_buckets")
    with pytest.raises(ImportError, match=r"reflexion-graph\[redis\]"):
        redis_backend("redis://127.0.0.1")


async def test_a_reply_is_kept_when_redis_is_lost_meanwhile(guards, caplog, closed_port):
    limit = guards(requests_per_minute=60)
    log = []
    async with limit.around(exchange()):
        log.append("sent")
        await limit._buckets.aclose()
        limit._buckets._url = f"redis://127.0.0.1:{closed_port}/0"
    assert log == ["sent"]
    assert "what a call took will lapse" in caplog.text


def test_one_backend_serves_one_event_loop_after_another(redis_url, prefix):
    backend = RedisBuckets(redis_url, prefix=prefix, patience_s=60)
    limit = RateLimit(Limits(concurrency=1), backend=backend)
    log = []

    async def use():
        await send(limit, log, exchange("a"))
        await backend.aclose()

    for _ in range(2):
        asyncio.run(use())
    assert log == ["a", "a"]
