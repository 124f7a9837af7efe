-- What the scripts of a segment share. A segment is a hash:
--   r remaining | v the sale and the newest mapping that anybody went by | i filled and brought, ever | l lent, ever
--   h held | g returned | p transfers lent and not settled | d when the next reservation ends, at the earliest
--   o<order>  t taken, h held, r returned, v void, and how many
--   x<transfer>  p<n>,<to>,<since> lent | s<n> settled        b<transfer>  how many were brought
-- and an agenda, a sorted set: reservations by their end, transfers that are not settled at 0, and at -1 the sale.
-- In a slot that is being moved one of the two may be at another member, and a key that a script empties is gone for its
-- next command, which then fails half-way. So neither is ever empty, and a script that needs the agenda asks for the sale in
-- it before it writes anything: {8, 0} says that it is not here.
local agenda = keys[1] .. ':a'
local function is_whole(sale) return redis.call('ZSCORE', agenda, sale) end
local function now_here()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end
-- Reservations that are over come back. Says how many.
local function lapse(key, now)
  local back, over = 0
  repeat
    over = redis.call('ZRANGEBYSCORE', agenda, '(0', now, 'LIMIT', 0, 1000)
    for _, order in ipairs(over) do
      local n = string.sub(redis.call('HGET', key, order), 2)
      redis.call('HSET', key, order, 'r' .. n)
      redis.call('ZREM', agenda, order)
      back = back + n
    end
  until #over < 1000
  if back > 0 then
    redis.call('HINCRBY', key, 'r', back)
    redis.call('HINCRBY', key, 'h', -back)
    redis.call('HINCRBY', key, 'g', back)
  end
  local first = redis.call('ZRANGEBYSCORE', agenda, '(0', '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if first[2] then redis.call('HSET', key, 'd', first[2]) else redis.call('HDEL', key, 'd') end
  return back
end
