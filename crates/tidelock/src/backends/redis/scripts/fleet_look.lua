--@fleet
-- What is in line, and what others keep at the name of the lock. Changes nothing.
-- KEYS    the lock's key | what others take
-- ARGV    n for a string, else l
-- Reply   {time, what is kept in line or nothing, what others keep: a string, fields and values, or nothing,
--         milliseconds until that expires, the type of what is neither or nothing}
--@rules
local found, strange = read_foreign(args[1], keys[2])
if type(found) == 'table' and mode_of(found) == 'read' then
  -- A reader that died is not missed by the others: its field stays until the last of them goes.
  local alive = {}
  for i = 1, #found, 2 do
    local lives = found[i] == 'mode'
    for number = 1, tonumber(found[i + 1]) or 0 do
      lives = lives or redis.call('EXISTS', timeout_of(keys[2], found[i], number)) == 1
    end
    if lives then alive[#alive + 1], alive[#alive + 2] = found[i], found[i + 1] end
  end
  found = alive
end
return {micros(), redis.call('GET', keys[1]) or '', found or '', redis.call('PTTL', keys[2]), strange or ''}
