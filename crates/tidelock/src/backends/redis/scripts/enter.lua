-- Takes a place in line, or, for a try, only if the claim holds at once.
-- KEYS    the lock's key, and in a cluster its four others
-- ARGV    1 id | 2 ask: q to queue, t to try | 3 ttl, 16 digits | 4 milliseconds to keep the head, at least
--         5 tail of the record: share, detached, n, of, owner, label
--         6 the least epoch of a grant, 16 digits, if it is not the server's time | 7 in a cluster the shard:
--         what channels of clients end with
-- Reply   epoch, as text: the claim holds, nobody else is in line
--         {1, epoch, ttl, waiting} holds | {2, ahead, lapse in or -1} waits | {3} busy
--         {4, capacity} another capacity is in use | {5, share, n, of} the owner holds only this
--         {8} all keys are needed | {9} the key holds something else
local key_here, id = keys[1], args[1]
local head = redis.call('GET', key_here)
local time = redis.call('TIME')
local now_text = time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
local floor = args[6] or ''
local least = floor ~= '' and floor or now_text
local kind_here = head and string.byte(head)
if kind_here ~= 76 and kind_here ~= 81 then
  local epoch, keep
  if not head then
    epoch = least
  elseif kind_here == 73 then
    epoch = string.sub(head, 2)
    if #epoch ~= 16 or not tonumber(epoch) then return {9} end
    if epoch < least then epoch = least else keep = true end
  elseif kind_here == 83 then
    if string.sub(head, 34, 49) + string.sub(head, 50, 65) > now_text + 0 then
      if string.sub(head, 2, 33) == id then
        redis.call('SET', key_here, string.sub(head, 1, 33) .. now_text .. string.sub(head, 50), 'PX', args[4])
        return string.sub(head, 83, 98)
      end
      -- A mutex that is taken, the commonest case of a try: nothing to write.
      local exclusive = string.byte(head, 115) == 120 or string.byte(args[5]) == 120
      local owner = string.match(args[5], '\n([^\n]*)')
      if args[2] == 't' and exclusive and (owner == '' or owner ~= string.match(head, '\n([^\n]*)', 117)) then
        return {3}
      end
    else
      epoch = string.sub(head, 83, 98)
      if epoch < least then epoch = least else keep = true end
    end
  end
  if epoch then
    local px = args[4]
    if keep then
      -- The clock went back: the epoch goes on from the last one, and is remembered until the clock is past it.
      epoch = string.format('%016d', epoch + 1)
      px = px + math.max(0, math.ceil((epoch - now_text) / 1000))
    end
    redis.call('SET', key_here,
      'S' .. id .. now_text .. args[3] .. now_text .. '1' .. epoch .. now_text .. args[5], 'PX', px)
    return epoch
  end
end
--@queue
if args[2] == 'q' and is_plain(args[5], 1) then
  local now_here = now_text + 0
  local lapses = now_here + args[3]
  local expires = math.ceil(lapses / 1000) + REMEMBER
  local claim = SEPARATOR .. id .. now_text .. args[3] .. now_text .. '0' .. string.rep('0', 32) .. args[5]
  if kind_here == 83 and is_plain(head, 115) then
    local first = string.sub(head, 34, 49) + string.sub(head, 50, 65)
    expires = math.max(expires, math.ceil(first / 1000) + REMEMBER)
    write_queue(key_here, math.min(first, lapses), expires, 2, SEPARATOR .. string.sub(head, 2) .. claim)
    return {2, 1, first - now_here}
  elseif kind_here == 81 then
    local earliest, until_then, count = read_queue(head, now_here)
    if earliest and count < LONGEST and not string.find(head, SEPARATOR .. id, 38, true) then
      write_queue(key_here, math.min(earliest, lapses), math.max(expires, until_then), count + 1,
        string.sub(head, 38) .. claim)
      return {2, count, -1}
    end
  end
end
if args[7] and #keys == 1 then return {8} end
--@line
if not open(key_here, head, now_text + 0, floor, args[7]) then return {9} end
local answer = renew(id)
if not answer then
  local c = read(now_text .. args[3] .. now_text .. '0' .. string.rep('0', 32) .. args[5])
  if c.share ~= 'x' and line.capacity ~= 0 and line.capacity ~= capacity(c) then
    answer = {4, line.capacity}
  elseif owner_has('h:', c) then
    for _, other in ipairs(call('ZRANGE', holders, 0, -1)) do
      local held = read(call('HGET', claims, other))
      if held.owner == c.owner then
        if covers(held, c) then
          c.hold, c.epoch, c.held_since = 2, held.epoch, now
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
      c.hold, c.epoch, c.held_since = 1, next_epoch(), now
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
