import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

import org.redisson.Redisson;
import org.redisson.RedissonRedLock;
import org.redisson.api.RLock;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Redisson: its plain lock with the watchdog, and its read-write lock. With REDISSON=cluster the servers are some members
 * of a cluster; with REDISSON=write or REDISSON=read a lock is that half of a read-write lock. On several servers a lock
 * is a RedissonRedLock over all of them.
 *
 * force SERVERS NAME   takes the lock from its holder, and ends
 * fenced SERVERS NAME  for each line that it reads, takes the fenced lock, says its token, and gives the lock back
 */
public class Peer {
    public static void main(String[] args) throws Exception {
        String kind = System.getenv().getOrDefault("REDISSON", "");
        List<RedissonClient> clients = new ArrayList<>();
        if (kind.equals("cluster")) {
            Config config = config();
            for (String server : args[1].split(",")) {
                config.useClusterServers().addNodeAddress("redis://" + server);
            }
            clients.add(Redisson.create(config));
        } else {
            for (String server : args[1].split(",")) {
                Config config = config();
                config.useSingleServer().setAddress("redis://" + server);
                clients.add(Redisson.create(config));
            }
        }
        RedissonClient client = clients.get(0);
        if (args[0].equals("force")) {
            System.out.println(client.getLock(args[2]).forceUnlock());
            client.shutdown(0, 1, TimeUnit.SECONDS);
            return;
        }
        if (args[0].equals("fenced")) {
            fenced(client, args[2]);
            client.shutdown(0, 1, TimeUnit.SECONDS);
            return;
        }
        Driver.main(new Driver.Library() {
            @Override
            public Driver.Lock lock(String name) {
                if (clients.size() > 1) {
                    RLock[] locks = clients.stream().map(each -> each.getLock(name)).toArray(RLock[]::new);
                    return of(new RedissonRedLock(locks));
                }
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
                clients.forEach(each -> each.shutdown(0, 1, TimeUnit.SECONDS));
            }
        }, args);
    }

    private static Config config() {
        Config config = new Config();
        config.setLockWatchdogTimeout(Driver.leaseMillis());
        return config;
    }

    /** By name: Redisson before 3.19 has no such lock, and this is built for it as well. */
    private static void fenced(RedissonClient client, String name) throws Exception {
        RLock lock = (RLock) RedissonClient.class.getMethod("getFencedLock", String.class).invoke(client, name);
        BufferedReader told = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        while (told.readLine() != null) {
            Object token = Class.forName("org.redisson.api.RFencedLock").getMethod("lockAndGetToken").invoke(lock);
            System.out.println(token);
            lock.unlock();
        }
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
