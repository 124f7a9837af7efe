-- Writes the plan of an item if the one before is there.
-- KEYS    the plan: version, a line end, and a text that means nothing here
-- ARGV    1 its version | 2 its text | 3 milliseconds after which it is forgotten, else nothing
-- Reply   {5, 1 if it was written}
local before = redis.call('GET', keys[1])
if tonumber(before and string.match(before, '^%d+') or 0) + 1 ~= tonumber(args[1]) then return {5, 0} end
redis.call('SET', keys[1], args[1] .. '\n' .. args[2])
if args[3] then redis.call('PEXPIRE', keys[1], args[3]) end
return {5, 1}
