import java.util.concurrent.TimeUnit;

import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Redisson: its plain lock with the watchdog, and its read-write lock. */
public class Peer {
    public static void main(String[] args) throws Exception {
        Config config = new Config();
        config.setLockWatchdogTimeout(Driver.leaseMillis());
        config.useSingleServer().setAddress("redis://" + args[1]);
        RedissonClient client = Redisson.create(config);
        Driver.main(new Driver.Library() {
            @Override
            public Driver.Lock lock(String name) {
                return of(client.getLock(name));
            }

            @Override
            public boolean attempt(String name) {
                return client.getLock(name).tryLock();
            }

            @Override
            public Driver.Lock[] readWrite(String name) {
                RReadWriteLock lock = client.getReadWriteLock(name);
                return new Driver.Lock[] {of(lock.readLock()), of(lock.writeLock())};
            }

            @Override
            public void close() {
                client.shutdown(0, 1, TimeUnit.SECONDS);
            }
        }, args);
    }

    private static Driver.Lock of(RLock lock) {
        return new Driver.Lock() {
            @Override
            public void lock() {
                lock.lock();
            }

            @Override
            public void unlock() {
                lock.unlock();
            }
        };
    }
}
