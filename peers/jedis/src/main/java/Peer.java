import java.util.List;
import java.util.UUID;

import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.params.SetParams;

/**
 * Jedis, with the lock that people write by hand: SET NX PX with a random value, asked again every 50 ms, and a script
 * that compares before it deletes.
 */
public class Peer {
    private static final String RELEASE =
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
    private static final long PAUSE_MILLIS = 50;

    public static void main(String[] args) {
        JedisPooled jedis = new JedisPooled(HostAndPort.from(args[1]));
        Driver.main(new Driver.Library() {
            private boolean take(String name, String value) {
                return "OK".equals(jedis.set(name, value, SetParams.setParams().nx().px(Driver.leaseMillis())));
            }

            @Override
            public Driver.Lock lock(String name) {
                return new Driver.Lock() {
                    private String value;

                    @Override
                    public void lock() throws InterruptedException {
                        value = UUID.randomUUID().toString();
                        while (!take(name, value)) {
                            Thread.sleep(PAUSE_MILLIS);
                        }
                    }

                    @Override
                    public void unlock() {
                        Object deleted = jedis.eval(RELEASE, List.of(name), List.of(value));
                        if (!Long.valueOf(1).equals(deleted)) {
                            throw new IllegalStateException("the lock was lost");
                        }
                    }
                };
            }

            @Override
            public boolean attempt(String name) {
                return take(name, UUID.randomUUID().toString());
            }

            @Override
            public void close() {
                jedis.close();
            }
        }, args);
    }
}
