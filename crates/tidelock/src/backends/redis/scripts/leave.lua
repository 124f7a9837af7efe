-- Takes a claim out of line.
-- KEYS    the lock's key, and in a cluster its four others
-- ARGV    1 id | 2 why, if there is more to say: nothing if its client is done with it, else e and the
--         reason of an eviction | 3 the least epoch of a grant, as for enter | 4 in a cluster the shard, as for enter
-- Reply   1 it was there | 0 it was not | 8 all keys are needed
local head = redis.call('GET', keys[1])
local kind_here = head and string.byte(head)
if kind_here ~= 76 then
  if kind_here ~= 83 or string.sub(head, 2, 33) ~= args[1] then return 0 end
  if (args[2] or '') == '' then
    redis.call('SET', keys[1], 'I' .. string.sub(head, 83, 98), 'KEEPTTL')
    return 1
  end
end
if args[4] and #keys == 1 then return 8 end
local time = redis.call('TIME')
--@line
open(keys[1], head, time[1] * 1000000 + time[2], args[3], args[4])
local record = call('HGET', claims, args[1])
if record then
  remove(args[1], read(record))
  if (args[2] or '') ~= '' then tell(args[1], 'E' .. args[1] .. sub(args[2], 2)) end
  advance()
end
close()
return record and 1 or 0
