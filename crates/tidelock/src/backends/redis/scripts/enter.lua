-- Takes a place in line, or, for a try, only if the claim holds at once.
-- KEYS    the lock's key, and in a cluster its four others
-- ARGV    1 id | 2 ask: q to queue, t to try | 3 ttl | 4 tail of the record: share, detached, n, of, owner, label
--         5 inbox: what channels of clients begin with | 6 shard: what they end with in a cluster, or nothing
-- Reply   {1, epoch, ttl, waiting} holds | {2, ahead, lapse in or -1} waits | {3} busy
--         {4, capacity} another capacity is in use | {5, share, n, of} the owner holds only this
--         {8} all keys are needed | {9} the key holds something else
local head = redis.call('GET', keys[1])
local time = redis.call('TIME')
local now_here = time[1] * 1000000 + time[2]
local kind_here = head and string.byte(head)
if kind_here ~= 76 then
  local last = 0
  local free = not head
  if kind_here == 73 then
    last, free = tonumber(string.sub(head, 2)), true
  elseif kind_here == 83 then
    local alive = tonumber(string.sub(head, 34, 49)) > now_here
    if alive and string.sub(head, 2, 33) ~= args[1] then
      -- A mutex that is taken, the commonest case of a try: nothing to write.
      local exclusive = string.byte(head, 115) == 120 or string.byte(args[4]) == 120
      local owner = string.match(args[4], '\n([^\n]*)')
      if args[2] == 't' and exclusive and (owner == '' or owner ~= string.match(head, '\n([^\n]*)', 117)) then
        return {3}
      end
    elseif alive then
      local ttl = tonumber(string.sub(head, 50, 65))
      redis.call('SET', keys[1],
        string.format('%s%016.0f%s', string.sub(head, 1, 33), now_here + ttl, string.sub(head, 50)),
        'PX', math.ceil(ttl / 1000) + 600000)
      return {1, tonumber(string.sub(head, 83, 98)), ttl, 0}
    else
      last, free = tonumber(string.sub(head, 83, 98)), true
    end
  end
  if free then
    local ttl = tonumber(args[3])
    local epoch = now_here
    local keep = math.ceil(ttl / 1000) + 600000
    if last >= now_here then
      epoch = last + 1
      keep = keep + math.ceil((epoch - now_here) / 1000)
    end
    redis.call('SET', keys[1], string.format('S%s%016.0f%016.0f%016.0f1%016.0f%016.0f%s',
      args[1], now_here + ttl, ttl, now_here, epoch, now_here, args[4]), 'PX', keep)
    return {1, epoch, ttl, 0}
  end
end
if args[6] ~= '' and #keys == 1 then return {8} end
--@line
local id = args[1]
if not open(keys[1], head, now_here, args[5], args[6]) then return {9} end
local answer = renew(id)
if not answer then
  local ttl = tonumber(args[3])
  local c = read(string.rep('0', 81) .. args[4])
  c.lapses, c.ttl, c.since = now_here + ttl, ttl, now_here
  if c.share ~= 'x' and line.capacity ~= 0 and line.capacity ~= capacity(c) then
    answer = {4, line.capacity}
  elseif owner_has('h:', c) then
    for _, other in ipairs(call('ZRANGE', holders, 0, -1)) do
      local held = read(call('HGET', claims, other))
      if held.owner == c.owner then
        if covers(held, c) then
          c.hold, c.epoch, c.held_since = 2, held.epoch, now_here
          break
        end
        answer = {5, string.byte(held.share), held.n or 0, held.of or 0}
      end
    end
    if c.hold == 2 then
      admit(id, c)
      answer = holds(c)
    end
  end
  if not answer then
    local at_once = line.waiting == 0 and fits(c)
    if at_once then
      c.hold, c.epoch, c.held_since = 1, next_epoch(), now_here
      admit(id, c)
      count_base(c)
      answer = holds(c)
    elseif args[2] == 't' then
      answer = {3}
    else
      admit(id, c)
      answer = waits(line.waiting - 1)
    end
  end
end
close()
return answer
