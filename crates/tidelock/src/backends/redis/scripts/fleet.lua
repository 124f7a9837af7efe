-- Locks of other programs, on top of our line: what they keep at the name of a lock, and our entry beside or in the
-- place of theirs. A claim that holds in the line is a holder only while its entry is there.
--
--   n  a string that `SET name value NX PX` makes
--   l  the hash of Redisson's RLock: one field
--   f  the same, and the counter of its RFencedLock, which each entry raises by one
--   r  the hash of its RReadWriteLock, to read: field `mode` and a field for each reader
--   w  the same, to write
-- Entry: the claim's id as a UUID, a colon, and when the entry was made in microseconds; `:write` to write, or a colon
-- and the number that the counter had. The time tells an entry that was taken away and made again from one that was
-- there all the time.
local OWNER = 37

local function owner_of(id)
  return table.concat({string.sub(id, 1, 8), string.sub(id, 9, 12), string.sub(id, 13, 16), string.sub(id, 17, 20),
    string.sub(id, 21)}, '-') .. ':'
end

-- What is kept there: nothing, a string, or fields and values. Also what else is there, if it is neither.
local function read_foreign(kind, at)
  local found
  if kind == 'n' then found = redis.pcall('GET', at) else found = redis.pcall('HGETALL', at) end
  if type(found) == 'table' and found.err then return nil, redis.call('TYPE', at).ok end
  if not found or type(found) == 'table' and not found[1] then return nil end
  return found
end

-- The entry of a claim in what is there, when it was made, and its number if it has one.
local function entry_of(found, id)
  local owner = owner_of(id)
  if type(found) == 'string' then found = {found, ''} end
  for i = 1, #(found or {}), 2 do
    if string.sub(found[i], 1, OWNER) == owner then
      local made, number = string.match(found[i], '^(%d+):?(%d*)', OWNER + 1)
      return found[i], tonumber(made), tonumber(number)
    end
  end
end

local function mode_of(found)
  for i = 1, #found, 2 do
    if found[i] == 'mode' then return found[i + 1] end
  end
end

-- Names beside the lock, as Redisson makes them: in the lock's slot.
local function tagged(at)
  return string.find(at, '{', 1, true) and at or '{' .. at .. '}'
end

local function timeout_of(at, entry, number)
  return tagged(at) .. ':' .. entry .. ':rwlock_timeout:' .. number
end

local function live_at_least(at, ttl)
  if redis.call('PTTL', at) < ttl then redis.call('PEXPIRE', at, ttl) end
end

-- Makes the entry of a claim, unless others are in the way. Says whether it did, and its number if it has one.
local function take(kind, at, counter, found, id, ttl, now)
  local entry = owner_of(id) .. string.format('%d', now)
  if kind == 'r' then
    if found and mode_of(found) ~= 'read' then return false end
    -- First: it may be refused in a slot that is on the move, and nothing has been written then.
    redis.call('SET', timeout_of(at, entry, 1), 1, 'PX', ttl)
    redis.call('HSET', at, 'mode', 'read', entry, 1)
    live_at_least(at, ttl)
    return true
  end
  if found then return false end
  local number
  if kind == 'f' then
    number = redis.pcall('INCR', counter)
    -- It is no counter. The renewal of other locks must go on.
    if type(number) ~= 'number' then return false end
    entry = entry .. ':' .. string.format('%d', number)
  end
  if kind == 'n' then
    redis.call('SET', at, entry, 'PX', ttl)
  else
    if kind == 'w' then
      redis.call('HSET', at, 'mode', 'write', entry .. ':write', 1)
    else
      redis.call('HSET', at, entry, 1)
    end
    redis.call('PEXPIRE', at, ttl)
  end
  return true, number
end

-- Keeps an entry alive.
local function keep(kind, at, entry, ttl)
  if kind == 'r' then
    redis.call('SET', timeout_of(at, entry, 1), 1, 'PX', ttl)
    live_at_least(at, ttl)
  else
    redis.call('PEXPIRE', at, ttl)
  end
end

-- Tells programs that wait. It is no reason to fail that the server refuses: they look again when the key expires.
local function wake(to, at, message, sharded)
  local channel = to .. ':' .. tagged(at)
  redis.pcall('PUBLISH', channel, message)
  if sharded then redis.pcall('SPUBLISH', channel, message) end
end

-- Takes an entry away, and wakes programs that wait.
local function free(at, found, entry, sharded)
  if type(found) == 'string' then
    redis.call('DEL', at)
    local name = string.match(at, '^lock:(.*)$')
    if name and not sharded then
      -- Those who wait with python-redis-lock wait for this list.
      local signal = 'lock-signal:' .. name
      redis.call('DEL', signal)
      redis.call('LPUSH', signal, 1)
      redis.call('PEXPIRE', signal, 1000)
    end
    return
  end
  local mode = mode_of(found)
  redis.call('HDEL', at, entry)
  if not mode then
    if redis.call('EXISTS', at) == 0 then wake('redisson_lock__channel', at, '0', sharded) end
  elseif string.sub(entry, -6) == ':write' then
    if redis.call('HLEN', at) > 1 then
      redis.call('HSET', at, 'mode', 'read')
    else
      redis.call('DEL', at)
      wake('redisson_rwlock', at, '1', sharded)
    end
  else
    redis.pcall('DEL', timeout_of(at, entry, 1))
    local longest, others = 0, redis.call('HGETALL', at)
    for i = 1, #others, 2 do
      for number = 1, tonumber(others[i + 1]) or 0 do
        local left = redis.pcall('PTTL', timeout_of(at, others[i], number))
        if type(left) == 'number' then longest = math.max(longest, left) end
      end
    end
    if #others > 2 and longest > 0 then
      redis.call('PEXPIRE', at, longest)
    elseif mode ~= 'write' then
      redis.call('DEL', at)
      wake('redisson_rwlock', at, '0', sharded)
    end
  end
end

-- A claim that holds in the line: when its entry was made, and its number; or nothing, in how many microseconds to look
-- again, and -1 if others are in the way, -2 if they are let in. Nothing at all: its entry was there, and is not any
-- more.
-- expected: what its client knows. w it has no entry and may make one | q the same, and one of ours held before it
--           h it has an entry | y and a time: as q, and it gave back the entry of this time
--           else when its entry was made
local function gate(kind, at, counter, found, id, expected, ttl, now)
  local entry, made, number = entry_of(found, id)
  local yielded = string.match(expected, '^y(%d+)$')
  if yielded then
    if entry and tonumber(yielded) == made then
      -- What gave it back did not arrive.
      free(at, found, entry, false)
      return nil, 25000 + now % 75000, -1
    end
    expected = 'q'
  end
  if entry then
    if expected ~= 'w' and expected ~= 'q' and expected ~= 'h' and tonumber(expected) ~= made then return nil end
    keep(kind, at, entry, ttl)
    return made, number
  end
  if expected ~= 'w' and expected ~= 'q' then return nil end
  -- Programs that ask again and again would hardly ever find the key free while we hand it over among us: a quarter
  -- of the time is theirs.
  if kind == 'n' and expected == 'q' and not found and now % 400000 < 100000 then
    return nil, 100000 - now % 400000, -2
  end
  local done, number = take(kind, at, counter, found, id, ttl, now)
  if done then return now, number end
  local pause, left = 500000, redis.call('PTTL', at)
  if kind == 'n' then pause = 25000 + now % 75000 end
  if left >= 0 then pause = math.min(pause, (left + 1) * 1000) end
  return nil, pause, -1
end

local function micros()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end
