-- Counts a segment.
-- KEYS    the segment | in a cluster its agenda
-- Reply   {10, remaining, sold, held, returned, then for each transfer that is not settled: id, how many, to, age}
--         {0, 0} no such segment
local key, agenda = keys[1], keys[2] or keys[1] .. ':a'
if redis.call('HEXISTS', key, 'n') == 0 then return {0, 0} end
--@stock
local now = now_here()
lapse(key, agenda, now)
local have = redis.call('HMGET', key, 'n', 'i', 'l', 'h', 'g')
for i = 1, 5 do have[i] = tonumber(have[i] or 0) end
local reply = {10, have[1], have[2] - have[3] - have[1] - have[4], have[4], have[5]}
for _, transfer in ipairs(redis.call('ZRANGEBYSCORE', agenda, 0, 0)) do
  local n, to, since = string.match(redis.call('HGET', key, transfer), 'p(%d+),(%d+),(%d+)')
  reply[#reply + 1] = string.sub(transfer, 2)
  reply[#reply + 1] = tonumber(n)
  reply[#reply + 1] = tonumber(to)
  reply[#reply + 1] = math.max(0, now - since)
end
return reply
