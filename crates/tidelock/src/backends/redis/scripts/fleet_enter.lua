--@enter
-- As enter, for a lock that other programs take, too.
-- KEYS    the lock's key | what others take | for kind f the counter
-- ARGV    1 kind | 2 milliseconds of the lease | then as enter
-- Reply   as enter, but always {1, epoch, ttl, waiting, when the entry was made, its number if it has one} holds
--         {2, ahead, look again in, -1} first in line, and others are in the way
--         {8, type} something else is kept where others take the lock
local kind, ttl, at, id = args[1], tonumber(args[2]), keys[2], args[3]
local answer
-- Nobody is there, the commonest case: the rules are not even set up.
if (kind == 'l' or kind == 'n') and redis.call('EXISTS', at) == 0 then
  answer = ordinary({keys[1]}, {unpack(args, 3)})
  if type(answer) == 'string' then
    local time = redis.call('TIME')
    local made = time[1] * 1000000 + time[2]
    local entry = string.sub(id, 1, 8) .. '-' .. string.sub(id, 9, 12) .. '-' .. string.sub(id, 13, 16) .. '-' ..
      string.sub(id, 17, 20) .. '-' .. string.sub(id, 21) .. ':' .. string.format('%d', made)
    if kind == 'n' then
      redis.call('SET', at, entry, 'PX', ttl)
    else
      redis.call('HSET', at, entry, 1)
      redis.call('PEXPIRE', at, ttl)
    end
    return {1, tonumber(answer), tonumber(args[5]), 0, made}
  end
end
--@rules
local found, strange
if not answer then
  found, strange = read_foreign(kind, at)
  if strange then return {8, strange} end
  -- A try leaves nothing in line.
  if args[4] == 't' and found and not entry_of(found, id) and (kind ~= 'r' or mode_of(found) ~= 'read') then
    return {3}
  end
  answer = ordinary({keys[1]}, {unpack(args, 3)})
end
if type(answer) == 'string' then answer = {1, tonumber(answer), tonumber(args[5]), 0} end
if answer[1] ~= 1 then return answer end
local made, more = gate(kind, at, keys[3], found, id, 'w', ttl, micros())
if not made then return {2, 1, more, -1} end
answer[5], answer[6] = made, more
return answer
