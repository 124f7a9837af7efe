--@enter
-- As enter, for a lock that other programs take, too.
-- KEYS    the lock's key | what others take
-- ARGV    1 kind | 2 milliseconds of the lease | then as enter
-- Reply   as enter, but always {1, epoch, ttl, waiting, when the entry was made} holds
--         {2, ahead, look again in, -1} first in line, and others are in the way
--         {8, type} something else is kept where others take the lock
local kind, ttl, rest = args[1], tonumber(args[2]), {unpack(args, 3)}
local found, strange = read_foreign(kind, keys[2])
if strange then return {8, strange} end
-- A try leaves nothing in line.
if rest[2] == 't' and found and not entry_of(found, rest[1]) and (kind ~= 'r' or mode_of(found) ~= 'read') then
  return {3}
end
local answer = ordinary({keys[1]}, rest)
if type(answer) == 'string' then answer = {1, tonumber(answer), tonumber(rest[3]), 0} end
if answer[1] ~= 1 then return answer end
local made, pause = gate(kind, keys[2], found, rest[1], 'w', ttl, micros())
if not made then return {2, 1, pause, -1} end
answer[5] = made
return answer
