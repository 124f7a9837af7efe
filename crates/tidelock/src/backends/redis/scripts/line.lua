-- The rules of a line, as src/line.rs has them. Needed only where a line is neither one claim nor a short queue.
--
-- A line is one string, at the lock's key. No script deletes it, and none needs another key: in a slot of a
-- cluster that is on the move, a script that touches a missing key is aborted where it stands. A script computes
-- first and then writes; after its first write no later command of it can fail.
--   I<epoch>          nobody is in line; the epoch of the last grant is remembered for a while
--   S<id><record>     one claim, which holds
--   Q<queue>          a few exclusive claims without owners, of which the first holds: see queue.lua
--   V01<numbers><gap><holders><waiters>   any other line; V01 is the version of this form
-- The letter names the form of the record as well: a change of the record takes another letter or number.
-- Numbers: epoch 16 | earliest lapse 16, or less | milliseconds at which the key expires 16 | held 8 | waiting 8
--          | bases 8 | used 10 | exclusive 1 | sharing 8 | capacity 10
--          | where the holders begin 10 | where those who wait begin 10 | how long all of it is 10
-- The gap is what holders left behind: a long line is not written anew for each of them.
-- Claim:   separator 1 | id 32 | record
-- Record:  renewed 16 | ttl 16 | since 16 | hold 1 (0 no, 1 yes, 2 rides) | epoch 16 | held since 16
--          | share 1 (x, s, p) | detached 1 | n , of \n owner \n label
-- Times are microseconds, all numbers decimal with leading zeros, so that they stand at fixed places.
local call, sub, find, format, match, concat =
  redis.call, string.sub, string.find, string.format, string.match, table.concat
local FORM, NUMBERS = '@form.line', @line.claims.before
-- The gap is closed when it is as long as this, and longer than the rest.
local WIDEST = 4096
-- So much of a long line is read behind its holders at first: those who are next.
local NEXT = 512

-- Those who wait are in `tail` from `first` on. Every long string costs time for each of its bytes, so none is made
-- without need: of a long line only the holders and those next to them are read, until more is asked for (`complete`).
local key, now, least, shard, line, holders, tail, first
-- Of the form V01: how much is before `tail` at the server, how long all of it is there, whether `tail` ends earlier.
local origin, total, partial
-- What is to be told after the next write, and the error of a server that refused to tell it.
local news, refused
-- Whether there is something to write; whether the key has to live longer than it was given; where the holders
-- begin at the server, if it has `tail` as it is, in the form V01; the claim that is to be added at its end.
local changed, grown, stored, appended

-- Reads those who wait, all of them.
local function complete()
  if partial then tail, partial = call('GETRANGE', key, origin, -1), false end
end

-- The claim that begins at a place of a section, and where the next one begins.
local function claim_at(section, at)
  local after = find(section, SEPARATOR, at + 1, true)
  return sub(section, at, (after or 0) - 1), after
end

-- What a claim says; nothing if it cannot be read.
local function read(text)
  local n, of, owner = match(text, '^(%d*),(%d*)\n([^\n]*)', @claim.text.begin)
  local renewed, ttl, hold, epoch =
    tonumber(sub(text, @claim.renewed)), tonumber(sub(text, @claim.ttl)), tonumber(sub(text, @claim.hold)), tonumber(sub(text, @claim.epoch))
  if not (owner and renewed and ttl and hold and epoch) then return nil end
  return {
    text = text,
    id = sub(text, @claim.id),
    lapses = renewed + ttl,
    ttl = ttl,
    hold = hold,
    epoch = epoch,
    share = sub(text, @claim.share),
    n = tonumber(n),
    of = tonumber(of),
    owner = owner,
  }
end

-- What sharing claims assume: 0 nothing, -1 any number of readers, else so many permits.
local function capacity(c)
  if c.share == '@share.exclusive' then return 0 end
  if c.share == '@share.shared' then return -1 end
  return c.of
end

local function weight(c)
  if c.share == '@share.permits' then return c.n end
  return 1
end

local function covers(held, asked)
  if held.share == '@share.exclusive' then return true end
  if held.share == '@share.shared' then return asked.share == '@share.shared' end
  return asked.share == '@share.permits' and held.of == asked.of and asked.n <= held.n
end

local function fits(c)
  if c.share == '@share.exclusive' then return line.bases == 0 end
  if line.exclusive == 1 then return false end
  return c.share == '@share.shared' or line.used + c.n <= c.of
end

local function count_base(c)
  line.bases = line.bases + 1
  if c.share == '@share.exclusive' then line.exclusive = 1 else line.used = line.used + weight(c) end
end

-- Where claims of an owner may be in a section: certain if there are none, so that most lines need not be read.
local function may_have(section, owner, from)
  return owner ~= '' and find(section, '\n' .. owner .. '\n', from, true)
end

-- The key outlives the claims in it and its epoch, and then goes away, even if all clients die.
local function expire_after(moment)
  local needed = math.ceil(moment / 1000) + REMEMBER
  if needed > line.expires then
    line.expires = needed + REMEMBER
    grown = true
  end
end

local function count_in(c)
  if line.held + line.waiting == 0 or c.lapses < line.earliest then line.earliest = c.lapses end
  if c.share ~= '@share.exclusive' then
    line.capacity = capacity(c)
    line.sharing = line.sharing + 1
  end
  expire_after(c.lapses)
  if c.hold == @hold.waits then
    line.waiting = line.waiting + 1
  else
    line.held = line.held + 1
    if c.hold == @hold.holds then count_base(c) end
  end
end

local function set_hold(c, hold, epoch)
  c.hold, c.epoch = hold, epoch
  c.text = sub(c.text, 1, @claim.hold.before) .. hold .. text_of(epoch) .. text_of(now) .. sub(c.text, @claim.share.begin)
end

-- Puts a new claim behind the holders, or at the end of the line. Nothing else is done to the line then.
local function admit(c)
  count_in(c)
  changed = true
  if stored and not grown and (c.hold == @hold.waits or line.waiting == 0) then
    appended = c.text
  elseif c.hold > @hold.waits then
    holders = holders .. c.text
  else
    tail, stored = tail .. c.text, nil
  end
end

-- The hold goes on for the largest of those that rode on it.
local function inherit(gone)
  local heir, heir_at, at = nil, nil, 1
  while at do
    local text, after = claim_at(holders, at)
    local c = read(text)
    if c.owner == gone.owner and c.hold == @hold.rides and c.epoch == gone.epoch then
      if not heir or c.share == '@share.exclusive' or (heir.share ~= '@share.exclusive' and weight(c) >= weight(heir)) then
        heir, heir_at = c, at
      end
    end
    at = after
  end
  if heir then
    holders = sub(holders, 1, @claim.hold.before(heir_at)) .. '@hold.holds' .. sub(holders, @claim.hold.after(heir_at))
    count_base(heir)
  end
end

-- Counts a claim out that is no longer in its section.
local function count_out(c)
  changed = true
  if c.share ~= '@share.exclusive' then
    line.sharing = line.sharing - 1
    if line.sharing == 0 then line.capacity = 0 end
  end
  if c.hold == @hold.waits then
    line.waiting = line.waiting - 1
    return
  end
  line.held = line.held - 1
  if c.hold == @hold.rides then return end
  line.bases = line.bases - 1
  if c.share == '@share.exclusive' then line.exclusive = 0 else line.used = line.used - weight(c) end
  if may_have(holders, c.owner, 1) then inherit(c) end
end

-- Takes out the claim with this id. Says whether it was in line.
local function remove(id)
  local at, text, after = find(holders, SEPARATOR .. id, 1, true), nil, nil
  if at then
    text, after = claim_at(holders, at)
    holders = sub(holders, 1, at - 1) .. (after and sub(holders, after) or '')
  else
    complete()
    at = find(tail, SEPARATOR .. id, first, true)
    if not at then return false end
    text, after = claim_at(tail, at)
    if at == first then
      first = after or #tail + 1
    else
      tail = sub(tail, first, at - 1) .. (after and sub(tail, after) or '')
      first, stored = 1, nil
    end
  end
  count_out(read(text))
  return true
end

-- Makes a claim that waits a holder, and puts it to those that are about to join the holders.
local function grant(granted, c, hold, epoch)
  line.waiting = line.waiting - 1
  line.held = line.held + 1
  set_hold(c, hold, epoch)
  granted[#granted + 1] = c.text
  news[#news + 1] = {c.id, format('@news.granted%s@granted.epoch..ttl.format%d', c.id, epoch, c.ttl, line.waiting)}
end

-- Claims of an owner that wait behind others ride on what it just got. Gives the others.
local function take_along(granted, base, behind)
  local left, at = {}, 1
  while at do
    local text, after = claim_at(behind, at)
    local c = read(text)
    if c.owner == base.owner and covers(base, c) then
      grant(granted, c, @hold.rides, base.epoch)
    else
      left[#left + 1] = text
    end
    at = after
  end
  return concat(left)
end

local function next_epoch()
  line.epoch = math.max(line.epoch + 1, least)
  expire_after(line.epoch)
  return line.epoch
end

-- Makes holders of all that fit now.
local function advance()
  local granted = {}
  -- Nothing fits beside an exclusive hold.
  while line.waiting > 0 and line.exclusive == 0 do
    local text, after = claim_at(tail, first)
    if partial and not after then
      complete()
      text, after = claim_at(tail, first)
    end
    local c = read(text)
    if not fits(c) then break end
    grant(granted, c, @hold.holds, next_epoch())
    count_base(c)
    first = after or #tail + 1
    if c.owner ~= '' then complete() end
    if may_have(tail, c.owner, first) then
      tail = take_along(granted, c, sub(tail, first))
      first, stored = 1, nil
    end
  end
  if granted[1] then
    changed = true
    holders = holders .. concat(granted)
  end
end

local function are_plain(section, at)
  while at and at <= #section do
    if not is_plain(section, @claim.share.begin(at)) then return false end
    at = find(section, SEPARATOR, at + 1, true)
  end
  return true
end

-- The beginning of the form V01.
local function numbers(start, waiters_at, length)
  return format('%s@line.epoch..length.format', FORM, line.epoch, line.earliest,
    line.expires, line.held, line.waiting, line.bases, line.used, line.exclusive, line.sharing, line.capacity,
    start, waiters_at, length)
end

local function write()
  local count = line.held + line.waiting
  if count == 0 then
    local ahead = math.max(0, math.ceil((line.epoch - now) / 1000))
    -- A claim that enters next has nothing to be added to.
    stored = nil
    return call('SET', key, '@form.idle' .. text_of(line.epoch), 'PX', REMEMBER + ahead)
  end
  -- What the shorter forms can say is said by them, if the epoch of their holder is the last one.
  if not appended and line.held == 1 and tonumber(sub(holders, @claim.epoch)) == line.epoch then
    if count == 1 then
      stored = nil
      return call('SET', key, '@form.single' .. sub(holders, @claim.id.begin), 'PXAT', line.expires)
    end
    if line.sharing == 0 and count <= LONGEST then complete() end
    if line.sharing == 0 and count <= LONGEST and are_plain(holders, 1) and are_plain(tail, first) then
      stored = nil
      return write_queue(key, line.earliest, line.expires, count, holders .. sub(tail, first))
    end
  end
  if appended then
    local length = total + #appended
    call('SETRANGE', key, total, appended)
    call('SETRANGE', key, 0, numbers(stored, line.waiting > 0 and origin + first or length + 1, length))
    return
  end
  -- Holders end where those who wait begin.
  local start = stored and origin + first - #holders
  if stored and not grown and start > NUMBERS and (start < WIDEST or start < total / 2) then
    call('SETRANGE', key, start - 1, holders)
    call('SETRANGE', key, 0, numbers(start, origin + first, total))
    stored = start
    return
  end
  complete()
  local length = NUMBERS + #holders + #tail - first + 1
  tail = numbers(NUMBERS + 1, NUMBERS + 1 + #holders, length) .. holders .. sub(tail, first)
  first, stored, grown, origin, total = NUMBERS + 1 + #holders, NUMBERS + 1, false, 0, length
  call('SET', key, tail, 'PXAT', line.expires)
end

-- Writes what changed, then tells whom it concerns. One that became a holder and that nobody can be told of is
-- dead, because only its client renews it: the next one holds. What is written at any time is a whole line.
local function settle()
  while changed do
    write()
    changed = false
    local told = news
    news = {}
    for _, one in ipairs(told) do
      local heard, failed = publish(key, shard, one[1], one[2])
      refused = refused or failed
      if not heard then remove(one[1]) end
    end
    if changed then advance() end
  end
end

-- Of a section from a place on: what is left without those who lapsed, those, and when the next one lapses.
local function sweep(section, from)
  local left, gone, earliest = {}, {}, math.huge
  local at = from <= #section and from or nil
  while at do
    local lapses = sub(section, @claim.renewed(at)) + sub(section, @claim.ttl(at))
    local after = find(section, SEPARATOR, at + 1, true)
    if lapses <= now then
      gone[#gone + 1] = sub(section, at, (after or 0) - 1)
      left[#left + 1] = sub(section, from, at - 1)
      from = after or #section + 1
    elseif lapses < earliest then
      earliest = lapses
    end
    at = after
  end
  if gone[1] then
    left[#left + 1] = sub(section, from)
    section = concat(left)
  end
  return section, gone, earliest
end

-- Lets lapsed claims go and moves the line.
local function reap()
  if now < line.earliest or line.held + line.waiting == 0 then return end
  local left, gone, soonest, lapsed, next
  complete()
  holders, gone, soonest = sweep(holders, 1)
  left, lapsed, next = sweep(tail, first)
  if lapsed[1] then tail, first, stored = left, 1, nil end
  for _, text in ipairs(lapsed) do count_out(read(text)) end
  for _, text in ipairs(gone) do count_out(read(text)) end
  line.earliest = math.min(soonest, next)
  if line.earliest == math.huge then line.earliest = 0 end
  changed = true
  advance()
  settle()
end

-- The line of the form V01, of which the first bytes were read, or all. Says whether it is one.
local function read_numbers(head, all)
  local _, to = find(head, '^%d+%-?%d+\@mark.separator.byte', @line.epoch.begin)
  if sub(head, @line.form) ~= FORM or to ~= NUMBERS + 1 then return false end
  local function number(from, until_then) return tonumber(sub(head, from, until_then)) end
  line = {epoch = number(@line.epoch), earliest = number(@line.earliest), expires = number(@line.expires), held = number(@line.held),
    waiting = number(@line.waiting), bases = number(@line.bases), used = number(@line.used), exclusive = number(@line.exclusive),
    sharing = number(@line.sharing), capacity = number(@line.capacity)}
  local waiters_at
  stored, waiters_at, total = number(@line.holders_at), number(@line.waiters_at), number(@line.length)
  if not (stored and waiters_at and total) then return false end
  if #head == BEGINNING then
    -- It has to end where it says.
    if #call('GETRANGE', key, total - 1, -1) ~= 1 then return false end
    origin, tail = stored - 1, call('GETRANGE', key, stored - 1, all and -1 or waiters_at + NEXT)
    partial = origin + #tail < total
  elseif #head == total then
    origin, tail = 0, head
  else
    return false
  end
  first = waiters_at - origin
  holders = sub(tail, stored - origin, first - 1)
  return line.held > 0 and stored > NUMBERS and sub(holders, @claim.mark) == SEPARATOR
    and sub(tail, first, first) == (line.waiting > 0 and SEPARATOR or '')
end

-- Opens the line at a key whose head was read, of the form V01 perhaps only the beginning; what lapsed is let go. Nothing if it
-- cannot be read. `all`: those who wait are read at once, because all are needed.
local function open(at, head, time, floor, on_shard, all)
  key, now, shard = at, time, on_shard
  least = floor and tonumber(floor) or now
  line = {epoch = 0, held = 0, waiting = 0, bases = 0, used = 0, exclusive = 0, sharing = 0, capacity = 0,
    earliest = 0, expires = 0}
  holders, tail, first, news, changed, grown, stored, appended = '', '', 1, {}, false, false, nil, nil
  origin, total, partial = 0, 0, false
  local kind = head and sub(head, @head.letter)
  if kind == '@form.line.letter' then
    if not read_numbers(head, all) then return false end
  elseif kind == '@form.idle' then
    line.epoch = #head == @idle.width and tonumber(sub(head, @idle.epoch.begin))
    if not line.epoch then return false end
  elseif kind == '@form.single' or kind == '@form.queue' then
    local claims, next = kind == '@form.single' and SEPARATOR .. sub(head, @single.id.begin) or sub(head, @queue.claims.begin), 1
    while next do
      local text, after = claim_at(claims, next)
      local c = read(text)
      if not c then return false end
      count_in(c)
      if c.hold > @hold.waits then
        line.epoch = c.epoch
        holders = holders .. text
      end
      next = after
    end
    if line.held ~= 1 then return false end
    tail, first = claims, #holders + 1
  elseif kind then
    return false
  end
  reap()
  return true
end

-- Answers: {1, epoch, ttl, waiting} holds; {2, ahead, lapse in or -1} waits.
local function holds(c)
  return {1, c.epoch, c.ttl, line.waiting}
end

local function waits(rank)
  local lapse_in = -1
  if rank == 0 then
    -- Only the first that waits is told when to look again: one question, not a herd.
    local _, _, soonest = sweep(holders, 1)
    if soonest ~= math.huge then lapse_in = math.max(0, soonest - now) end
  end
  return {2, line.held + rank, lapse_in}
end

-- Renews a claim that holds or waits. Answers nothing if it is not in line.
local function renew(id)
  local at = find(holders, SEPARATOR .. id, 1, true)
  local held, section = at, holders
  if not held then
    complete()
    at, section = find(tail, SEPARATOR .. id, first, true), tail
  end
  if not at then return nil end
  local ttl = tonumber(sub(section, @claim.ttl(at)))
  expire_after(now + ttl)
  if stored and not grown then
    call('SETRANGE', key, @claim.renewed.before(at) + (held and stored - 1 or origin), text_of(now))
  else
    section = sub(section, 1, @claim.renewed.before(at)) .. text_of(now) .. sub(section, @claim.renewed.after(at))
    if held then holders = section else tail, stored = section, nil end
    changed = true
  end
  if held then return {1, tonumber(sub(section, @claim.epoch(at))), ttl, line.waiting} end
  local rank, from = 0, first
  while from < at do
    rank = rank + 1
    from = find(section, SEPARATOR, from + 1, true)
  end
  return waits(rank)
end
