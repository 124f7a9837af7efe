--@fleet
-- Takes an entry of another program away, and wakes those that wait. That program is not told.
-- KEYS    what others take
-- ARGV    1 n for a string, else l | 2 the string, or the field | 3 s in a cluster
-- Reply   1 it was there | 0 it was not
--@rules
local found = read_foreign(args[1], keys[1])
local fields = type(found) == 'string' and {found, ''} or found or {}
for i = 1, #fields, 2 do
  if fields[i] == args[2] and fields[i] ~= 'mode' then
    free(keys[1], found, args[2], args[3] == 's')
    return 1
  end
end
return 0
