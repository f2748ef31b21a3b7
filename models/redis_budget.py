"""Budgets that workers share through Redis."""

import asyncio
import json
from collections.abc import Iterable
from typing import Any

from redis.asyncio import Redis
from redis.commands.core import AsyncScript
from redis.exceptions import RedisError

from reflexion.models.errors import ModelError
from reflexion.models.shared_budget import Books, Units

KEPT_S = 90 * 24 * 3600
"""Seconds for which a budget is kept that nobody uses."""
CONNECTIONS = 4
"""Of one process."""

_UNREACHABLE = (RedisError, OSError, TimeoutError)


class RedisBudgets:
    """One hash for each budget: what is spent, and its holds. Each step is one script, on the server's clock.

    The budget is as durable as that Redis: one that forgets on restart lets everything be spent again.
    """

    def __init__(self, url: str, *, prefix: str = "reflexion:budget", patience_s: float = 5.0) -> None:
        """Share budgets.

        Args:
            url: `redis://[user:password@]host:port/database`.
            prefix: of the keys.
            patience_s: seconds after which Redis counts as unreachable.
        """
        self._url = url
        self._prefix = prefix
        self._patience_s = patience_s
        self._redis: Redis | None = None
        self._script: AsyncScript | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connections = asyncio.Semaphore(CONNECTIONS)

    async def reserve(
        self, name: str, hold: str, needed: Units, limit: tuple[int | None, int | None, int | None], lease_s: float
    ) -> Books:
        """Set the amount aside if it fits."""
        most = [9e15 if cap is None else cap for cap in limit]
        return await self._run(name, "reserve", hold=hold, amounts=needed, most=most, lease_s=lease_s)

    async def settle(self, name: str, hold: str, used: Units | None) -> None:
        """Replace what is set aside by what was used."""
        await self._run(name, "settle", hold=hold, amounts=used or Units())

    async def renew(self, name: str, holds: Iterable[str], lease_s: float) -> None:
        """Prolong leases."""
        await self._run(name, "renew", holds=list(holds), lease_s=lease_s)

    async def look(self, name: str) -> Books:
        """The books."""
        return await self._run(name, "look")

    async def aclose(self) -> None:
        """Close the connections of the running event loop; those of an earlier one ended with it."""
        if self._redis and self._loop is asyncio.get_running_loop():
            await self._redis.aclose()
        self._redis = None

    async def _run(self, name: str, what: str, **details: Any) -> Books:
        script = self._connected()
        ask = json.dumps({"what": what, "kept_s": KEPT_S, **details})
        try:
            async with self._connections, asyncio.timeout(self._patience_s):
                said: Any = await script(keys=[f"{self._prefix}:{name}"], args=[ask])
        except _UNREACHABLE as error:
            raise ModelError("connection", f"the shared budget in Redis cannot be reached: {error!r}") from error
        granted, *amounts = (int(number) for number in said)
        return Books(
            granted=bool(granted), spent=Units(*amounts[:3]), held=Units(*amounts[3:6]), lapsed=Units(*amounts[6:])
        )

    def _connected(self) -> AsyncScript:
        """The script at a client of the running event loop, as connections do not outlive theirs."""
        loop = asyncio.get_running_loop()
        if self._redis is None or self._script is None or self._loop is not loop:
            self._redis, self._loop = Redis.from_url(self._url), loop
            self._script = self._redis.register_script(_SCRIPT)
            self._connections = asyncio.Semaphore(CONNECTIONS)
        return self._script


_SCRIPT = """
local ask = cjson.decode(ARGV[1])
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local KINDS = {'nano', 'tokens', 'requests'}

local function write(field, hold)
  for i = 1, 3 do hold[i] = string.format('%.0f', hold[i]) end
  hold[4] = string.format('%.6f', hold[4])
  redis.call('HSET', KEYS[1], field, table.concat(hold, ' '))
end

local function read(text)
  local hold = {}
  for number in string.gmatch(text, '%S+') do table.insert(hold, tonumber(number)) end
  return hold
end

local function books()
  local spent, held, lapsed = {0, 0, 0}, {0, 0, 0}, {0, 0, 0}
  local all = redis.call('HGETALL', KEYS[1])
  for at = 1, #all, 2 do
    local field, value = all[at], all[at + 1]
    if string.sub(field, 1, 5) == 'hold:' then
      local hold = read(value)
      local sums = hold[4] > now and held or lapsed
      for i = 1, 3 do sums[i] = sums[i] + hold[i] end
    end
    for i = 1, 3 do if field == KINDS[i] then spent[i] = tonumber(value) end end
  end
  return spent, held, lapsed
end

local function prolong(id)
  local found = redis.call('HGET', KEYS[1], 'hold:' .. id)
  if not found then return false end
  local hold = read(found)
  hold[4] = now + ask.lease_s
  write('hold:' .. id, hold)
  return true
end

local granted = false
if ask.what == 'reserve' then
  granted = prolong(ask.hold)
  if not granted then
    local spent, held, lapsed = books()
    granted = true
    for i = 1, 3 do
      if spent[i] + held[i] + lapsed[i] + ask.amounts[i] > ask.most[i] then granted = false end
    end
    if granted then
      write('hold:' .. ask.hold, {ask.amounts[1], ask.amounts[2], ask.amounts[3], now + ask.lease_s})
    end
  end
elseif ask.what == 'settle' then
  if redis.call('HDEL', KEYS[1], 'hold:' .. ask.hold) == 1 then
    for i = 1, 3 do redis.call('HINCRBY', KEYS[1], KINDS[i], string.format('%.0f', ask.amounts[i])) end
  end
elseif ask.what == 'renew' then
  for _, id in ipairs(ask.holds) do prolong(id) end
end
if ask.what ~= 'look' then redis.call('EXPIRE', KEYS[1], ask.kept_s) end
local said = {granted and '1' or '0'}
for _, sums in ipairs({books()}) do
  for i = 1, 3 do table.insert(said, string.format('%.0f', sums[i])) end
end
return said
"""
