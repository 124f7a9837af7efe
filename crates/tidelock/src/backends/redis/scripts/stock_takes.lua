-- Takes from a segment for several orders, each all or nothing.
-- KEYS    the segment
-- ARGV    1 sale | for each: number of the caller's mapping | o and the order | how many
-- Reply   for each: how many it took, now; 0 for those that have to be asked for alone
local key, fields, answers, changes = keys[1], {'r', 'v'}, {}, {'r', 0}
for at = 3, #args, 3 do fields[#fields + 1] = args[at] end
local have = redis.call('HMGET', key, unpack(fields))
local remaining, taken = tonumber(have[1] or 0), {}
-- Of another sale, or closed: no mapping fits.
local mapping = have[2] and string.sub(have[2], 1, 16) == args[1] and string.sub(have[2], 18)
if mapping == '9007199254740991' then mapping = false end
for at = 2, #args, 3 do
  local index, order, n = #answers + 1, args[at + 1], tonumber(args[at + 2])
  answers[index] = 0
  if args[at] == mapping and not have[index + 2] and not taken[order] and n > 0 and remaining >= n then
    answers[index], taken[order], remaining = n, true, remaining - n
    changes[#changes + 1] = order
    changes[#changes + 1] = 't' .. args[at + 2]
  end
end
changes[2] = remaining
if #changes > 2 then redis.call('HSET', key, unpack(changes)) end
return answers
