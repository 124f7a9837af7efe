--@renew
-- As renew, for locks that other programs take, too.
-- KEYS    the locks' keys | what others take, for each lock
-- ARGV    1 how many locks | then for each kind, what its client knows, milliseconds of its lease | then as renew
-- Reply   as renew, with a fifth number for each: when the entry of one that holds was made; of one that waits and is
--         first in line -1 if others are in the way, -2 if they are let in
--@rules
local count = tonumber(args[1])
local plain = ordinary({unpack(keys, 1, count)}, {unpack(args, 3 * count + 2)})
if plain.err then return plain end
local now, answers = micros(), {}
for i = 1, count do
  local at, five = keys[count + i], {plain[4 * i - 3], plain[4 * i - 2], plain[4 * i - 1], plain[4 * i], 0}
  if five[1] == 1 then
    local kind, expected, ttl = args[3 * i - 1], args[3 * i], tonumber(args[3 * i + 1])
    -- Of something else that is kept there it is known only that others are in the way.
    local found, strange = read_foreign(kind, at)
    local made, pause, why = gate(kind, at, strange and {'', ''} or found, args[3 * count + 2 + i], expected, ttl, now)
    if made then
      five[5] = made
    elseif pause then
      five = {2, 1, pause, 0, why}
    else
      five = {0, 0, 0, 0, 0}
    end
  end
  for j = 1, 5 do answers[5 * i - 5 + j] = five[j] end
end
answers[5 * count + 1] = plain[4 * count + 1]
return answers
