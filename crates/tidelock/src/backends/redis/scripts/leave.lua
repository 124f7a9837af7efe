-- Takes a claim out of line.
-- KEYS    the lock's key, and in a cluster its four others
-- ARGV    1 id | 2 why, if there is more to say: nothing if its client is done with it, else e and the
--         reason of an eviction | 3 the least epoch of a grant, as for enter | 4 in a cluster the shard, as for enter
-- Reply   1 it was there | 0 it was not | 8 all keys are needed
local head = redis.call('GET', keys[1])
local kind_here = head and string.byte(head)
if kind_here ~= 76 and kind_here ~= 81 then
  if kind_here ~= 83 or string.sub(head, 2, 33) ~= args[1] then return 0 end
  if (args[2] or '') == '' then
    redis.call('SET', keys[1], 'I' .. string.sub(head, 83, 98), 'KEEPTTL')
    return 1
  end
end
local time = redis.call('TIME')
local now_here = time[1] * 1000000 + time[2]
--@queue
if kind_here == 81 and (args[2] or '') == '' then
  local at = string.find(head, SEPARATOR .. args[1], 38, true)
  if not at then return 0 end
  local earliest, expires, count = read_queue(head, now_here)
  if earliest then
    local rest = string.find(head, SEPARATOR, at + 1, true)
    count = count - 1
    local claims = string.sub(head, 38, at - 1) .. (rest and string.sub(head, rest) or '')
    local epoch = tonumber(string.sub(head, 120, 135))
    if at == 38 then
      local floor = args[3] or ''
      local least = floor ~= '' and tonumber(floor) or now_here
      local prefix = string.match(keys[1], '^[^{]*') .. 'in:'
      -- The next one holds. One that nobody can be told of is dead, and the one behind it is the next.
      while count > 0 do
        epoch = math.max(epoch + 1, least)
        claims = string.sub(claims, 1, 81) .. '1' .. text_of(epoch) .. text_of(now_here) .. string.sub(claims, 115)
        local next_id = string.sub(claims, 2, 33)
        local grant = 'G' .. next_id .. text_of(epoch) .. string.sub(claims, 50, 65) .. (count - 1) .. '\n' .. keys[1]
        local told = args[4] == '?' and 1
          or redis.call(args[4] and 'SPUBLISH' or 'PUBLISH', prefix .. string.sub(next_id, 1, 16) .. (args[4] or ''), grant)
        if told > 0 then break end
        rest = string.find(claims, SEPARATOR, 2, true)
        claims = rest and string.sub(claims, rest) or ''
        count = count - 1
      end
    end
    if count == 0 then
      local ahead = math.max(0, math.ceil((epoch - now_here) / 1000))
      redis.call('SET', keys[1], 'I' .. text_of(epoch), 'PX', REMEMBER + ahead)
    elseif count == 1 then
      redis.call('SET', keys[1], 'S' .. string.sub(claims, 2), 'PXAT', expires)
    else
      write_queue(keys[1], earliest, expires, count, claims)
    end
    return 1
  end
end
if args[4] and #keys == 1 then return 8 end
--@line
open(keys[1], head, now_here, args[3], args[4])
local record = call('HGET', claims, args[1])
if record then
  remove(args[1], read(record))
  if (args[2] or '') ~= '' then tell(args[1], 'E' .. args[1] .. sub(args[2], 2)) end
  advance()
end
close()
return record and 1 or 0
