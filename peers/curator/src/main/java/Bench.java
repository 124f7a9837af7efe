import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.ExponentialBackoffRetry;

import java.util.concurrent.TimeUnit;

/** Curator: InterProcessMutex, InterProcessReadWriteLock and LeaderLatch. */
public class Bench {
    public static void main(String[] args) throws Exception {
        int session = (int) Driver.leaseMillis();
        CuratorFramework client =
                CuratorFrameworkFactory.newClient(args[1], session, 15_000, new ExponentialBackoffRetry(100, 10));
        client.start();
        client.blockUntilConnected();
        Driver.main(new Driver.Library() {
            @Override
            public Driver.Lock lock(String name) {
                return of(new InterProcessMutex(client, "/" + name));
            }

            @Override
            public Driver.Lock lead(String name) {
                return new Driver.Lock() {
                    private LeaderLatch latch;

                    @Override
                    public void lock() throws Exception {
                        latch = new LeaderLatch(client, "/" + name);
                        latch.start();
                        latch.await();
                    }

                    @Override
                    public void unlock() throws Exception {
                        latch.close();
                    }
                };
            }

            @Override
            public boolean attempt(String name) throws Exception {
                return new InterProcessMutex(client, "/" + name).acquire(0, TimeUnit.MILLISECONDS);
            }

            @Override
            public Driver.Lock[] readWrite(String name) {
                InterProcessReadWriteLock lock = new InterProcessReadWriteLock(client, "/" + name);
                return new Driver.Lock[] {of(lock.readLock()), of(lock.writeLock())};
            }

            @Override
            public void close() {
                client.close();
            }
        }, args);
    }

    private static Driver.Lock of(InterProcessLock lock) {
        return new Driver.Lock() {
            @Override
            public void lock() throws Exception {
                lock.acquire();
            }

            @Override
            public void unlock() throws Exception {
                lock.release();
            }
        };
    }
}
