-- Renews claims, one for each lock, and says how each stands.
-- KEYS    the locks' keys, in a cluster each with its four others
-- ARGV    1 how many locks | then an id for each lock | then the least epoch of a grant and in a cluster the
--         shard, as for enter
-- Reply   for each claim four numbers: {1, epoch, ttl, waiting} | {2, ahead, lapse in or -1, 0} | {0, 0, 0, 0} gone;
--         then the server's time; or {8} all keys are needed
local time = redis.call('TIME')
local now_text = time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
local answers, rest = {}, nil
local count = tonumber(args[1])
local each = #keys / count
for i = 1, count do
  local at = keys[(i - 1) * each + 1]
  local head = redis.call('GET', at)
  local kind_here = head and string.byte(head)
  local a, b, c, d = 0, 0, 0, 0
  if kind_here == 83 and string.sub(head, 2, 33) == args[i + 1] then
    local ttl = tonumber(string.sub(head, 50, 65))
    if string.sub(head, 34, 49) + ttl > now_text + 0 then
      redis.call('SET', at, string.sub(head, 1, 33) .. now_text .. string.sub(head, 50), 'PX',
        math.ceil(ttl / 1000) + REMEMBER)
      a, b, c = 1, tonumber(string.sub(head, 83, 98)), ttl
    end
  elseif kind_here == 76 or kind_here == 81 then
    if kind_here == 76 and args[count + 3] and each == 1 then return {8} end
    rest = rest or {}
    rest[#rest + 1] = i
  end
  answers[4 * i - 3], answers[4 * i - 2], answers[4 * i - 1], answers[4 * i] = a, b, c, d
end
answers[4 * count + 1] = tonumber(now_text)
if not rest then return answers end
--@queue
local longer
for _, i in ipairs(rest) do
  local key_here = keys[(i - 1) * each + 1]
  local head = redis.call('GET', key_here)
  local earliest, expires, claims
  if string.byte(head) == 81 then earliest, expires, claims = read_queue(head, now_text + 0) end
  if earliest then
    local at = string.find(head, SEPARATOR .. args[i + 1], 38, true)
    if at then
      local ttl = tonumber(string.sub(head, at + 49, at + 64))
      expires = math.max(expires, math.ceil((now_text + ttl) / 1000) + REMEMBER)
      head = string.sub(head, 1, at + 32) .. now_text .. string.sub(head, at + 49)
      write_queue(key_here, earliest, expires, claims, string.sub(head, 38))
      local a, b, c, d
      if at == 38 then
        a, b, c, d = 1, tonumber(string.sub(head, 120, 135)), ttl, claims - 1
      else
        local _, ahead = string.gsub(string.sub(head, 38, at - 1), SEPARATOR, '')
        a, b, c, d = 2, ahead, -1, 0
        if ahead == 1 then c = string.sub(head, 71, 86) + string.sub(head, 87, 102) - now_text end
      end
      answers[4 * i - 3], answers[4 * i - 2], answers[4 * i - 1], answers[4 * i] = a, b, c, d
    end
  else
    longer = longer or {}
    longer[#longer + 1] = i
  end
end
if not longer then return answers end
if args[count + 3] and each == 1 then return {8} end
--@line
for _, i in ipairs(longer) do
  local at = keys[(i - 1) * each + 1]
  open(at, redis.call('GET', at), now_text + 0, args[count + 2], args[count + 3])
  local answer = renew(args[i + 1])
  close()
  if answer then
    for j = 1, 4 do answers[4 * i - 4 + j] = answer[j] or 0 end
  end
end
return answers
