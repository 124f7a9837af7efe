-- Turns away whoever wants to take, and forgets the segment after a while.
-- KEYS    the segment | in a cluster its agenda
-- ARGV    1 milliseconds
-- Reply   {5, 0} | {0, 0} no such segment
if redis.call('HEXISTS', keys[1], 'n') == 0 then return {0, 0} end
redis.call('HSET', keys[1], 'v', '9007199254740991')
redis.call('PEXPIRE', keys[1], args[1])
redis.call('PEXPIRE', keys[2] or keys[1] .. ':a', args[1])
return {5, 0}
