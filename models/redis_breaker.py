"""Circuits that many processes and machines share through Redis, with the semantics of `circuit.Circuit`."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict
from typing import cast

from redis.asyncio import Redis
from redis.exceptions import RedisError

from reflexion.models.breaker import Step
from reflexion.models.circuit import SLICES, BreakerPolicy, Circuit, CircuitState, Key, Verdict
from reflexion.models.shared_circuits import SharedCircuits

_FORGOTTEN_AFTER_S = 86_400
"""A circuit that nobody has entered for so long (and longer than it may be open) is new again."""

_AT_ONCE = 16
"""Steps under way from one process: clients refuse more than the connections of their pool, 100 by default."""


class RedisCircuits(SharedCircuits):
    """Circuits in Redis. Every step is one script there, on the server's clock, and so atomic."""

    server = "Redis"
    unreachable = (RedisError, OSError, TimeoutError)

    def __init__(
        self,
        url: str,
        policy: BreakerPolicy | None = None,
        *,
        prefix: str = "reflexion:circuits",
        lease_s: float = 15.0,
        patience_s: float = 1.0,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Share circuits.

        Args:
            url: `redis://[user:password@]host:port/database`.
            policy: must be the same in every process.
            prefix: of the keys; one key for each endpoint and model.
            lease_s: seconds after which the place of a probe whose process died falls free.
            patience_s: seconds for which an answer of Redis is waited for.
            clock: replaces the server's clock, for tests.
        """
        policy = policy or BreakerPolicy()
        super().__init__(policy, lease_s=lease_s, patience_s=patience_s)
        self._url = url
        kept_s = _FORGOTTEN_AFTER_S + policy.longest_open_s + policy.window_s
        self._policy = json.dumps(asdict(policy) | {"slices": SLICES, "lease_s": lease_s, "forgotten_s": kept_s})
        self._prefix = prefix
        self._clock = clock
        self._connection: _Connection | None = None

    async def states(self) -> list[CircuitState]:
        """All circuits in Redis, by endpoint and model.

        Raises:
            RedisError, OSError, TimeoutError: Redis gives no answer.
        """
        names = [name async for name in self._connected().redis.scan_iter(match=f"{self._prefix}:*", count=1000)]
        keys = [cast("Key", tuple(json.loads(name.decode().removeprefix(f"{self._prefix}:")))) for name in names]
        return [(await self._step(key, "look")).after for key in sorted(keys)]

    async def aclose(self) -> None:
        """Close the connections of the running event loop; those of an earlier one ended with it."""
        if self._connection and self._connection.loop is asyncio.get_running_loop():
            await self._connection.redis.aclose()
        self._connection = None

    async def _step(self, key: Key, what: str, epoch: int = 0, verdict: Verdict = "nothing", why: str = "") -> Step:
        now = "" if self._clock is None else repr(self._clock())
        storable = why.encode("utf-8", "replace").decode()
        arguments: list[str | int] = [what, self._policy, now, epoch, verdict, storable]
        connection = self._connected()
        name = f"{self._prefix}:{json.dumps(key)}"
        async with connection.turns:
            done = json.loads(await self._in_time(lambda: connection.script(keys=[name], args=arguments)))
        return Step(done["before"], Circuit(**done["circuit"]).seen(key, done["now"]), done.get("epoch"))

    def _connected(self) -> "_Connection":
        if self._connection is None or self._connection.loop is not asyncio.get_running_loop():
            self._connection = _Connection(self._url)
        return self._connection


class _Connection:
    """A client of the running event loop, as connections do not outlive theirs."""

    def __init__(self, url: str) -> None:
        self.loop = asyncio.get_running_loop()
        self.redis = Redis.from_url(url)
        self.script = self.redis.register_script(_SCRIPT)
        self.turns = asyncio.Semaphore(_AT_ONCE)


_SCRIPT = """
local what, policy, epoch, verdict, why = ARGV[1], cjson.decode(ARGV[2]), tonumber(ARGV[4]), ARGV[5], ARGV[6]
local time = redis.call('TIME')
local now = tonumber(ARGV[3]) or time[1] + time[2] / 1000000
local stored = redis.call('GET', KEYS[1])
-- The first epoch is the time, so that it differs from those of a circuit that was forgotten.
local circuit = stored and cjson.decode(stored) or {
  since = now, state = 'closed', epoch = math.floor(time[1]), consecutive = 0, slices = {}, openings = 0,
  retry_at = 0, probe_until = 0, faults = 0, requests = 0, why = '',
}
local before, admitted = circuit.state, nil

local function turn(state)
  circuit.state, circuit.since, circuit.epoch = state, now, circuit.epoch + 1
  circuit.consecutive, circuit.slices, circuit.probe_until = 0, {}, 0
end

local function open()
  local again = circuit.state == 'half_open' or now - circuit.since <= policy.window_s
  circuit.openings, circuit.why = again and circuit.openings + 1 or 1, why
  turn('open')
  local open_s = policy.first_open_s * 2 ^ math.min(circuit.openings - 1, 60)
  circuit.retry_at = now + math.min(policy.longest_open_s, open_s)
end

local function enter()
  if circuit.state == 'closed' then
    admitted = circuit.epoch
  elseif now >= (circuit.state == 'open' and circuit.retry_at or circuit.probe_until) then
    if circuit.state == 'open' then turn('half_open') end
    circuit.epoch = circuit.epoch + 1
    circuit.probe_until = now + policy.lease_s
    admitted = circuit.epoch
  end
end

local function count()
  local fault = verdict == 'fault' and 1 or 0
  circuit.consecutive = fault == 1 and circuit.consecutive + 1 or 0
  local number = math.floor(now * policy.slices / policy.window_s)
  local kept = {}
  for _, slice in ipairs(circuit.slices) do
    if slice[1] > number - policy.slices then table.insert(kept, slice) end
  end
  if #kept == 0 or kept[#kept][1] ~= number then table.insert(kept, {number, 0, 0}) end
  kept[#kept][2], kept[#kept][3] = kept[#kept][2] + 1, kept[#kept][3] + fault
  circuit.slices, circuit.requests, circuit.faults = kept, 0, 0
  for _, slice in ipairs(kept) do
    circuit.requests, circuit.faults = circuit.requests + slice[2], circuit.faults + slice[3]
  end
end

local function leave()
  if verdict == 'nothing' then
    circuit.probe_until = 0
  elseif circuit.state == 'closed' then
    count()
    local share = circuit.requests >= policy.least and circuit.faults >= policy.share * circuit.requests
    if verdict == 'fault' and (share or circuit.consecutive >= policy.consecutive) then open() end
  elseif verdict == 'fault' then
    open()
  else
    turn('closed')
    circuit.requests, circuit.faults = 0, 0
  end
end

if what == 'enter' then
  enter()
elseif epoch == circuit.epoch and what == 'leave' then
  leave()
elseif epoch == circuit.epoch and what == 'renew' and circuit.probe_until > 0 then
  circuit.probe_until = now + policy.lease_s
end
if what ~= 'look' then
  redis.call('SET', KEYS[1], cjson.encode(circuit), 'EX', math.ceil(policy.forgotten_s))
end
return cjson.encode({before = before, circuit = circuit, now = now, epoch = admitted})
"""
