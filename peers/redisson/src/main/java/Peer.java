import java.util.concurrent.TimeUnit;

import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Redisson: its plain lock with the watchdog, and its read-write lock. With REDISSON=cluster the servers are some members
 * of a cluster; with REDISSON=write or REDISSON=read a lock is that half of a read-write lock.
 *
 * force SERVERS NAME   takes the lock from its holder, and ends
 */
public class Peer {
    public static void main(String[] args) throws Exception {
        Config config = new Config();
        config.setLockWatchdogTimeout(Driver.leaseMillis());
        String kind = System.getenv().getOrDefault("REDISSON", "");
        if (kind.equals("cluster")) {
            for (String server : args[1].split(",")) {
                config.useClusterServers().addNodeAddress("redis://" + server);
            }
        } else {
            config.useSingleServer().setAddress("redis://" + args[1]);
        }
        RedissonClient client = Redisson.create(config);
        if (args[0].equals("force")) {
            System.out.println(client.getLock(args[2]).forceUnlock());
            client.shutdown(0, 1, TimeUnit.SECONDS);
            return;
        }
        Driver.main(new Driver.Library() {
            @Override
            public Driver.Lock lock(String name) {
                switch (kind) {
                    case "write":
                        return of(client.getReadWriteLock(name).writeLock());
                    case "read":
                        return of(client.getReadWriteLock(name).readLock());
                    default:
                        return of(client.getLock(name));
                }
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
