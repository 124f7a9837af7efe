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
        config.useSingleServer().setAddress("redis://" + args[1]);
        RedissonClient client = Redisson.create(config);
        Driver.main(new Driver.Library() {
            @Override
            public Driver.Lock lock(String name) {
                return of(client.getLock(name));
            }

            @Override
            public boolean attempt(String name) throws Exception {
                // Another thread: whoever holds would come in again.
                boolean[] taken = {false};
                Thread thread = new Thread(() -> taken[0] = client.getLock(name).tryLock());
                thread.start();
                thread.join();
                return taken[0];
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
