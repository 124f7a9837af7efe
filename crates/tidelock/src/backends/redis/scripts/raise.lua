-- Raises the epoch of a claim that holds, so that no later grant here gets a smaller one.
-- KEYS    the lock's key
-- ARGV    1 id | 2 epoch, 16 digits
-- Reply   the claim's epoch now, as text | nothing if it does not hold
local head = redis.call('GET', keys[1])
local kind_here = head and string.byte(head)
if kind_here == 83 then
  if string.sub(head, 2, 33) ~= args[1] then return false end
  local epoch = string.sub(head, 83, 98)
  if epoch >= args[2] then return epoch end
  redis.call('SET', keys[1], string.sub(head, 1, 82) .. args[2] .. string.sub(head, 99), 'KEEPTTL')
  return args[2]
end
if kind_here == 81 then
  -- Only the first of a queue holds.
  if string.sub(head, 39, 70) ~= args[1] then return false end
  local epoch = string.sub(head, 120, 135)
  if epoch >= args[2] then return epoch end
  redis.call('SET', keys[1], string.sub(head, 1, 119) .. args[2] .. string.sub(head, 136), 'KEEPTTL')
  return args[2]
end
if kind_here ~= 76 then return false end
local time = redis.call('TIME')
--@line
open(keys[1], head, time[1] * 1000000 + time[2], args[2])
local record = call('HGET', claims, args[1])
local c = record and read(record)
if c and c.hold > 0 and c.epoch < tonumber(args[2]) then
  c.epoch = tonumber(args[2])
  line.epoch = math.max(line.epoch, c.epoch)
  line.changed = true
  write(args[1], c)
end
close()
return c and c.hold > 0 and format('%016d', c.epoch)
