"""What Redis does for `RedisBuckets` in one step: `LocalBuckets` in Lua, and the order of the processes."""

SCRIPT = """
local KINDS = {'requests', 'tokens'}
local ask = cjson.decode(ARGV[1])
local now = ask.now
if now == cjson.null then
  local time = redis.call('TIME')
  now = time[1] + time[2] / 1000000
end
local packed = redis.call('GET', KEYS[1])
-- held: what is in flight, oldest first; heads: each process's first call.
local state = packed and cmsgpack.unpack(packed) or {at = now, levels = {}, held = {}, heads = {}}
local rates, levels, held, heads = ask.rates, state.levels, state.held, state.heads

local function refill()
  local passed = math.max(0, now - state.at)
  state.at = math.max(now, state.at)
  for kind, rate in pairs(rates) do
    levels[kind] = math.min(rate.burst, (levels[kind] or rate.burst) + rate.per_s * passed)
    local room, last = rate.burst - levels[kind], held[#held]
    if last then last.rooms[kind] = math.min(last.rooms[kind] or room, room) end
  end
end

local function give_back(index, kind, amount)
  if amount > 0 then
    for i = index, #held do amount = math.min(amount, held[i].rooms[kind] or 0) end
    for i = index, #held do held[i].rooms[kind] = (held[i].rooms[kind] or 0) - amount end
  end
  levels[kind] = levels[kind] + amount
end

local function let_go(index)
  local gone = table.remove(held, index)
  local before = held[index - 1]
  if before then
    for kind, room in pairs(gone.rooms) do
      before.rooms[kind] = math.min(before.rooms[kind] or room, room)
    end
  end
end

local function forget_the_dead()
  for i = #held, 1, -1 do
    if held[i].till <= now then let_go(i) end
  end
  for by, head in pairs(heads) do
    if head.till <= now then heads[by] = nil end
  end
end

-- As in FairQueue: within a priority who has been due longest, between priorities by age.
local function first()
  local due = {}
  for by, head in pairs(heads) do
    local rival = due[head.priority]
    if not rival or head.due < heads[rival].due or (head.due == heads[rival].due and by < rival) then
      due[head.priority] = by
    end
  end
  local best, highest, oldest
  for priority, by in pairs(due) do
    local arrived = heads[by].arrived
    local rank = priority + (now - arrived) / ask.ageing_s
    if not best or rank > highest or (rank == highest and arrived < oldest) then
      best, highest, oldest = by, rank, arrived
    end
  end
  return best
end

local function answer(taken, wait_s, waiting_for)
  return {taken = taken, wait_s = wait_s, waiting_for = waiting_for,
          requests_left = levels.requests, tokens_left = levels.tokens}
end

local function take(claim)
  for _, taking in ipairs(held) do  -- the client repeats what it got no answer to
    if taking.id == claim.id then return answer(true, 0, 'turn') end
  end
  heads[claim.by] = {till = now + ask.head_lease_s, priority = claim.priority,
                     due = now - claim.turn_s, arrived = now - claim.waited_s}
  if first() ~= claim.by then return answer(false, ask.poll_s, 'turn') end
  if #held >= ask.concurrency then return answer(false, ask.poll_s, 'concurrency') end
  local amounts = {requests = 1, tokens = claim.tokens}
  local longest, waiting_for = 0, nil
  for _, kind in ipairs(KINDS) do
    local rate = rates[kind]
    local missing = rate and math.min(amounts[kind], rate.burst) - levels[kind] or 0
    if missing > ask.rounding and missing / rate.per_s > longest then
      longest, waiting_for = missing / rate.per_s, kind
    end
  end
  if waiting_for then return answer(false, math.min(longest, ask.poll_s), waiting_for) end
  local mine = {id = claim.id, till = now + ask.lease_s, rooms = {}}
  for kind, rate in pairs(rates) do
    levels[kind] = levels[kind] - amounts[kind]
    mine.rooms[kind] = rate.burst - levels[kind]
  end
  table.insert(held, mine)
  heads[claim.by] = nil
  return answer(true, 0, 'turn')
end

local function settle(id, back)
  for i, taking in ipairs(held) do
    if taking.id == id then
      for kind in pairs(rates) do give_back(i, kind, back[kind]) end
      let_go(i)
      return
    end
  end
  -- The lease ran out: what it took counts as used, what went beyond is still owed.
  for kind in pairs(rates) do levels[kind] = levels[kind] + math.min(0, back[kind]) end
end

local function renew(ids)
  local mine = {}
  for _, id in ipairs(ids) do mine[id] = true end
  for _, taking in ipairs(held) do
    if mine[taking.id] then taking.till = now + ask.lease_s end
  end
end

refill()
forget_the_dead()
local said
if ask.what == 'take' then said = take(ask.claim)
elseif ask.what == 'settle' then settle(ask.id, ask.back)
elseif ask.what == 'renew' then renew(ask.ids)
elseif ask.what == 'withdraw' then heads[ask.by] = nil end

local kept_s = ask.lease_s + ask.head_lease_s
for kind, rate in pairs(rates) do kept_s = math.max(kept_s, (rate.burst - levels[kind]) / rate.per_s + 1) end
redis.call('SET', KEYS[1], cmsgpack.pack(state), 'PX', math.ceil(kept_s * 1000))
return cjson.encode(said or answer(true, 0, 'turn'))
"""
