import io.etcd.jetcd.ByteSequence;
import io.etcd.jetcd.Client;
import io.etcd.jetcd.support.Observers;

import java.nio.charset.StandardCharsets;

/** jetcd: the server's own lock call, each lock under a lease that is kept alive. */
public class Peer {
    public static void main(String[] args) throws Exception {
        Client client = Client.builder().endpoints("http://" + args[1]).build();
        Driver.main(new Driver.Library() {
            private Long shared;

            private long lease() throws Exception {
                long its = client.getLeaseClient().grant((Driver.leaseMillis() + 999) / 1000).get().getID();
                client.getLeaseClient().keepAlive(its, Observers.observer(response -> { }));
                return its;
            }

            @Override
            public Driver.Lock lock(String name) throws Exception {
                // A lease has one place in a line: each lock of a name needs one of its own to wait for another.
                return lock(name, lease());
            }

            @Override
            public Driver.Lock kept(String name) throws Exception {
                shared = shared == null ? lease() : shared;
                return lock(name, shared);
            }

            private Driver.Lock lock(String name, long its) {
                ByteSequence key = ByteSequence.from(name, StandardCharsets.UTF_8);
                return new Driver.Lock() {
                    private ByteSequence held;

                    @Override
                    public void lock() throws Exception {
                        held = client.getLockClient().lock(key, its).get().getKey();
                    }

                    @Override
                    public void unlock() throws Exception {
                        client.getLockClient().unlock(held).get();
                    }
                };
            }

            @Override
            public void close() throws Exception {
                if (shared != null) {
                    client.getLeaseClient().revoke(shared).get();
                }
                client.close();
            }
        }, args);
    }
}
