"""Buckets shared through a real Redis: by real processes, killed ones too."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid

import pytest
import redis
from limit_calls import exchange, line, most_over

from reflexion.models.errors import ModelError
from reflexion.models.limits import Limits, LimitWaitExceeded, RateLimit
from reflexion.models.redis_buckets import RedisBuckets, redis_backend

PROGRAM = """
import asyncio, json, sys, time
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
    backend = RedisBuckets(plan["url"], prefix=plan["prefix"], lease_s=plan["lease_s"])
    limit = RateLimit(Limits(**plan["limits"]), backend=backend)
    await backend.withdraw(("http://warm", "up"), Limits(), "me")
    print("ready", flush=True)
    sys.stdin.readline()
    await asyncio.gather(*(one(limit, plan, plan["name"]) for _ in range(plan["calls"])))

asyncio.run(main())
"""


@pytest.fixture
def prefix(redis_url):
    name = f"test:{uuid.uuid4().hex}"
    yield name
    with redis.Redis.from_url(redis_url) as client:
        for key in client.scan_iter(match=f"{name}*"):
            client.delete(key)


@pytest.fixture
def start(redis_url, prefix):
    """Start a process that makes so many calls at once, as soon as it is told to."""
    started = []

    def start(*, calls, limits, name="run", tokens=0, takes=0.0, lease_s=30.0):
        plan = {
            "url": redis_url,
            "prefix": prefix,
            "calls": calls,
            "limits": limits,
            "name": name,
            "tokens": tokens,
            "takes": takes,
            "lease_s": lease_s,
        }
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, json.dumps(plan)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def go(*processes):
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()


class Watch:
    """Redis's own record of the takings that were granted, on its own clock."""

    def __init__(self, url, prefix):
        self._client = redis.Redis.from_url(url)
        self._prefix = prefix
        self._asked = {}
        self.granted = []
        """(server's time, tokens, run) of each call that was let through and ended."""
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self):
        self._thread.start()
        assert self._listening.wait(10)
        return self

    def __exit__(self, *_):
        self._client.set(f"{self._prefix}:end", 1)
        self._thread.join(10)
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
    limits = {"requests_per_minute": 3000, "burst_requests": 5, "tokens_per_minute": 240_000, "burst_tokens": 500}
    with Watch(redis_url, prefix) as watch:
        both = [start(calls=100, limits=limits, tokens=80, name=name) for name in ("one", "two")]
        go(*both)
        outputs = [process.communicate(timeout=60)[0].split() for process in both]
    assert [len(output) for output in outputs] == [100, 100]
    assert len(watch.granted) == 200
    # MONITOR tells microseconds, of the moment a command begins: the margin is what 10 ms refill.
    per_s = Limits(**limits)
    requests = [(when, 1) for when, _ in watch.granted]
    assert most_over(requests, per_s.requests.per_s, 5) <= 0.01 * per_s.requests.per_s
    assert most_over(watch.granted, per_s.tokens.per_s, 500) <= 0.01 * per_s.tokens.per_s
    took = watch.granted[-1][0] - watch.granted[0][0]
    least = (200 * 80 - 500) / per_s.tokens.per_s
    assert least * 0.99 <= took <= least * 2, "the rate is used, too"
