-- What is in line. Changes nothing.
-- KEYS[1] the lock's key
-- Reply   {time, epoch, id, record, …} holders first, then who waits, in order; {} if idle;
--         {time, head} if transactions keep the line
local head = redis.call('GET', keys[1])
local kind_here = head and string.sub(head, 1, 1)
if kind_here ~= 'S' and kind_here ~= 'L' and kind_here ~= 'T' then return {} end
local time = redis.call('TIME')
local now_here = time[1] * 1000000 + time[2]
if kind_here == 'T' then return {now_here, head} end
if kind_here == 'S' then
  return {now_here, tonumber(string.sub(head, 83, 98)), string.sub(head, 2, 33), string.sub(head, 34)}
end
local seen = {now_here, tonumber(string.match(head, '^L(%d+)'))}
for _, set in ipairs({':h', ':w'}) do
  for _, id in ipairs(redis.call('ZRANGE', keys[1] .. set, 0, -1)) do
    seen[#seen + 1] = id
    seen[#seen + 1] = redis.call('HGET', keys[1] .. ':c', id)
  end
end
return seen
