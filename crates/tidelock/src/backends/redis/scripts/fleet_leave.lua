--@leave
-- As leave, for a lock that other programs take, too.
-- KEYS    the lock's key | what others take
-- ARGV    1 n for a string, else l | 2 what its client knows, as for renew | 3 s in a cluster | then as leave
-- Reply   as leave; 0 as well if the entry that its client knows of is not there any more, or that of a hold which its
--         client left behind
local form, at, id, sharded = args[1], keys[2], args[4], args[3] == 's'
-- Its client knows the entry and nobody else is there, the commonest case: the rules are not even set up.
if tonumber(args[2]) and string.sub(at, 1, 5) ~= 'lock:' then
  local entry = string.sub(id, 1, 8) .. '-' .. string.sub(id, 9, 12) .. '-' .. string.sub(id, 13, 16) .. '-' ..
    string.sub(id, 17, 20) .. '-' .. string.sub(id, 21) .. ':' .. args[2]
  local is_string = form == 'n' and redis.pcall('GET', at) == entry
  if is_string or form == 'l' and redis.pcall('HLEN', at) == 1 and redis.call('HEXISTS', at, entry) == 1 then
    local answer = ordinary({keys[1]}, {unpack(args, 4)})
    redis.call('DEL', at)
    if not is_string then
      local channel = 'redisson_lock__channel:' .. (string.find(at, '{', 1, true) and at or '{' .. at .. '}')
      redis.pcall('PUBLISH', channel, '0')
      if sharded then redis.pcall('SPUBLISH', channel, '0') end
    end
    return answer
  end
end
--@rules
local found = read_foreign(form, at)
local entry, made = entry_of(found, id)
local answer = ordinary({keys[1]}, {unpack(args, 4)})
if entry then free(at, found, entry, sharded) end
local known, is_done = tonumber(args[2]), (args[5] or '') == ''
if answer == 1 and (known and known ~= made or args[2] == 'h' and is_done and not made) then return 0 end
return answer
