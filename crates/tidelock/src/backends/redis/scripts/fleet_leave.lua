--@leave
-- As leave, for a lock that other programs take, too.
-- KEYS    the lock's key | what others take
-- ARGV    1 n for a string, else l | 2 what its client knows, as for renew | 3 s in a cluster | then as leave
-- Reply   as leave; 0 as well if the entry that its client knows of is not there any more, or that of a hold which its
--         client left behind
local found = read_foreign(args[1], keys[2])
local rest = {unpack(args, 4)}
local entry, made = entry_of(found, rest[1])
local answer = ordinary({keys[1]}, rest)
if entry then free(keys[2], found, entry, args[3] == 's') end
local known, is_done = tonumber(args[2]), (rest[2] or '') == ''
if answer == 1 and (known and known ~= made or args[2] == 'h' and is_done and not made) then return 0 end
return answer
