-- The rules of a line, as src/line.rs has them. Needed only where a line is more than one claim.
--
-- Head, a string at the lock's key:
--   I<epoch>          nobody is in line; the epoch of the last grant is remembered for a while
--   S<id><record>     one claim, which holds
--   Q<queue>          a few exclusive claims without owners, of which the first holds: see queue.lua
--   L<numbers>        several claims, kept in the keys below
-- Record: renewed 16 | ttl 16 | since 16 | hold 1 (0 no, 1 yes, 2 rides) | epoch 16 | held since 16
--         | share 1 (x, s, p) | detached 1 | n , of \n owner \n label
-- In a cluster all keys of a lock are given, so that a slot on the move is served only where all of them
-- are; with the head alone a script does what the head alone suffices for, and answers 8 otherwise.
-- Times are microseconds, all numbers decimal with leading zeros, so that they stand at fixed places.
--
--   <key>:c  hash: id -> record; h:<owner>, w:<owner> -> how many claims of the owner hold, wait
--   <key>:w  sorted set: who waits, by arrival
--   <key>:x  sorted set: who waits, by lapse
--   <key>:h  sorted set: who holds, by lapse
local call, sub, format, match = redis.call, string.sub, string.format, string.match

local key, now, least, shard, claims, waiters, lapses, holders, line

local function read(record)
  local n, of, owner = match(record, '^(%d*),(%d*)\n([^\n]*)', 84)
  local ttl = tonumber(sub(record, 17, 32))
  return {
    lapses = sub(record, 1, 16) + ttl,
    ttl = ttl,
    since = tonumber(sub(record, 33, 48)),
    hold = tonumber(sub(record, 49, 49)),
    epoch = tonumber(sub(record, 50, 65)),
    held_since = tonumber(sub(record, 66, 81)),
    tail = sub(record, 82),
    share = sub(record, 82, 82),
    n = tonumber(n),
    of = tonumber(of),
    owner = owner,
  }
end

local function write(id, c)
  local record = format('%016d%016d%016d%d%016d%016d%s',
    c.lapses - c.ttl, c.ttl, c.since, c.hold, c.epoch, c.held_since, c.tail)
  call('HSET', claims, id, record)
end

-- What sharing claims assume: 0 nothing, -1 any number of readers, else so many permits.
local function capacity(c)
  if c.share == 'x' then return 0 end
  if c.share == 's' then return -1 end
  return c.of
end

local function weight(c)
  if c.share == 'p' then return c.n end
  return 1
end

local function covers(held, asked)
  if held.share == 'x' then return true end
  if held.share == 's' then return asked.share == 's' end
  return asked.share == 'p' and held.of == asked.of and asked.n <= held.n
end

local function fits(c)
  if c.share == 'x' then return line.bases == 0 end
  if line.exclusive == 1 then return false end
  return c.share == 's' or line.used + c.n <= c.of
end

local function count_base(c)
  line.bases = line.bases + 1
  if c.share == 'x' then line.exclusive = 1 else line.used = line.used + weight(c) end
end

local function count_owner(kind, c, by)
  if c.owner ~= '' then
    local field = kind .. c.owner
    if call('HINCRBY', claims, field, by) == 0 then call('HDEL', claims, field) end
  end
end

local function owner_has(kind, c)
  return c.owner ~= '' and call('HEXISTS', claims, kind .. c.owner) == 1
end

-- No key outlives the claims in it for ever, even if all clients die.
local function expire_after(moment)
  local needed = math.ceil(moment / 1000) + REMEMBER
  if needed > line.expires then
    line.expires = needed + REMEMBER
    line.expire_all = true
  end
end

-- Puts a claim among the holders.
local function add_holder(id, c)
  if line.held == 0 then line.new_holders = true end
  line.held = line.held + 1
  call('ZADD', holders, c.lapses, id)
  write(id, c)
  count_owner('h:', c, 1)
end

local function admit(id, c)
  if line.held + line.waiting == 0 or c.lapses < line.earliest then line.earliest = c.lapses end
  if c.share ~= 'x' then
    line.capacity = capacity(c)
    line.sharing = line.sharing + 1
  end
  expire_after(c.lapses)
  line.changed = true
  if c.hold > 0 then return add_holder(id, c) end
  if line.waiting == 0 then line.new_waiters = true end
  line.waiting = line.waiting + 1
  line.next = line.next + 1
  call('ZADD', waiters, line.next, id)
  call('ZADD', lapses, c.lapses, id)
  write(id, c)
  count_owner('w:', c, 1)
end

-- The hold goes on for the largest of those that rode on it.
local function inherit(gone)
  local heir_id, heir
  for _, id in ipairs(call('ZRANGE', holders, 0, -1)) do
    local c = read(call('HGET', claims, id))
    if c.owner == gone.owner and c.hold == 2 and c.epoch == gone.epoch then
      if not heir or c.share == 'x' or (heir.share ~= 'x' and weight(c) >= weight(heir)) then
        heir_id, heir = id, c
      end
    end
  end
  if heir then
    heir.hold = 1
    write(heir_id, heir)
    count_base(heir)
  end
end

local function remove(id, c)
  line.changed = true
  call('HDEL', claims, id)
  if c.share ~= 'x' then
    line.sharing = line.sharing - 1
    if line.sharing == 0 then line.capacity = 0 end
  end
  if c.hold == 0 then
    line.waiting = line.waiting - 1
    call('ZREM', waiters, id)
    call('ZREM', lapses, id)
    return count_owner('w:', c, -1)
  end
  line.held = line.held - 1
  call('ZREM', holders, id)
  count_owner('h:', c, -1)
  if c.hold == 2 then return end
  line.bases = line.bases - 1
  if c.share == 'x' then line.exclusive = 0 else line.used = line.used - weight(c) end
  if owner_has('h:', c) then inherit(c) end
end

-- Tells a claim's client. Says whether anybody was there to hear it.
local function tell(id, text)
  -- While a slot moves nobody can hear here: clients find out by asking.
  if shard == '?' then return true end
  local to = match(key, '^[^{]*') .. 'in:' .. sub(id, 1, 16) .. (shard or '')
  return call(shard and 'SPUBLISH' or 'PUBLISH', to, text .. '\n' .. key) > 0
end

-- Makes a claim that waits a holder. Says whether its client lives: nobody else renews it.
local function grant(id, c, hold, epoch)
  line.waiting = line.waiting - 1
  call('ZREM', waiters, id)
  call('ZREM', lapses, id)
  count_owner('w:', c, -1)
  c.hold, c.epoch, c.held_since = hold, epoch, now
  add_holder(id, c)
  if hold == 1 then count_base(c) end
  if tell(id, format('G%s%016d%016d%d', id, epoch, c.ttl, line.waiting)) then return true end
  remove(id, c)
  return false
end

-- Claims of an owner that wait behind others ride on what it just got.
local function take_along(base)
  for _, id in ipairs(call('ZRANGE', waiters, 0, -1)) do
    local c = read(call('HGET', claims, id))
    if c.owner == base.owner and covers(base, c) then grant(id, c, 2, base.epoch) end
  end
end

local function next_epoch()
  line.epoch = math.max(line.epoch + 1, least)
  return line.epoch
end

-- Makes holders of all that fit now.
local function advance()
  while line.waiting > 0 do
    local id = call('ZRANGE', waiters, 0, 0)[1]
    local c = read(call('HGET', claims, id))
    if not fits(c) then return end
    line.changed = true
    if grant(id, c, 1, next_epoch()) and owner_has('w:', c) then take_along(c) end
  end
end

-- Lets lapsed claims go and moves the line.
local function reap()
  if now < line.earliest or line.held + line.waiting == 0 then return end
  for _, set in ipairs({lapses, holders}) do
    for _, id in ipairs(call('ZRANGEBYSCORE', set, '-inf', now)) do
      remove(id, read(call('HGET', claims, id)))
    end
  end
  line.changed = true
  line.earliest = math.huge
  for _, set in ipairs({lapses, holders}) do
    local first = call('ZRANGE', set, 0, 0, 'WITHSCORES')
    if first[2] then line.earliest = math.min(line.earliest, tonumber(first[2])) end
  end
  if line.earliest == math.huge then line.earliest = 0 end
  advance()
end

-- Opens the line at a key whose head was read; what lapsed is let go.
local function open(at, head, time, floor, on_shard)
  key, now, shard = at, time, on_shard
  least = floor and tonumber(floor) or now
  claims, waiters, lapses, holders = key .. ':c', key .. ':w', key .. ':x', key .. ':h'
  line = {epoch = 0, held = 0, waiting = 0, bases = 0, used = 0, exclusive = 0, sharing = 0, capacity = 0,
    next = 0, earliest = 0, expires = 0}
  local kind = head and sub(head, 1, 1)
  if kind == 'L' then
    local i = 0
    local names = {'epoch', 'held', 'waiting', 'bases', 'used', 'exclusive', 'sharing', 'capacity', 'next',
      'earliest', 'expires'}
    for text in string.gmatch(sub(head, 2), '[^,]+') do
      i = i + 1
      line[names[i]] = tonumber(text)
    end
  elseif kind == 'I' then
    line.epoch = tonumber(sub(head, 2))
  elseif kind == 'S' then
    local c = read(sub(head, 34))
    line.epoch = c.epoch
    admit(sub(head, 2, 33), c)
    count_base(c)
  elseif kind == 'Q' then
    for claim in string.gmatch(sub(head, 39), '[^\30]+') do
      local c = read(sub(claim, 33))
      if c.hold > 0 then line.epoch = c.epoch end
      admit(sub(claim, 1, 32), c)
      if c.hold > 0 then count_base(c) end
    end
  elseif kind then
    return false
  end
  reap()
  return true
end

local function close()
  if not line.changed then return end
  if line.held + line.waiting == 0 then
    call('DEL', claims, waiters, lapses, holders)
    local ahead = math.max(0, math.ceil((line.epoch - now) / 1000))
    return call('SET', key, format('I%016d', line.epoch), 'PX', REMEMBER + ahead)
  end
  call('SET', key, format('L%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d', line.epoch, line.held, line.waiting,
    line.bases, line.used, line.exclusive, line.sharing, line.capacity, line.next, line.earliest, line.expires),
    'PXAT', line.expires)
  if line.expire_all then
    for _, k in ipairs({claims, waiters, lapses, holders}) do call('PEXPIREAT', k, line.expires) end
    return
  end
  if line.new_holders then call('PEXPIREAT', holders, line.expires) end
  if line.new_waiters then
    call('PEXPIREAT', waiters, line.expires)
    call('PEXPIREAT', lapses, line.expires)
  end
end

-- Answers: {1, epoch, ttl, waiting} holds; {2, ahead, lapse in or -1} waits.
local function holds(c)
  return {1, c.epoch, c.ttl, line.waiting}
end

local function waits(rank)
  local lapse_in = -1
  if rank == 0 then
    local first = call('ZRANGE', holders, 0, 0, 'WITHSCORES')
    -- Only the first that waits is told when to look again: one question, not a herd.
    if first[2] then lapse_in = math.max(0, tonumber(first[2]) - now) end
  end
  return {2, line.held + rank, lapse_in}
end

-- Renews a claim in line. Answers nothing if it is not there.
local function renew(id)
  local record = call('HGET', claims, id)
  if not record then return nil end
  local c = read(record)
  c.lapses = now + c.ttl
  write(id, c)
  local before = line.expires
  expire_after(c.lapses)
  if line.expires > before then line.changed = true end
  if c.hold > 0 then
    call('ZADD', holders, c.lapses, id)
    return holds(c)
  end
  call('ZADD', lapses, c.lapses, id)
  return waits(call('ZRANK', waiters, id))
end
