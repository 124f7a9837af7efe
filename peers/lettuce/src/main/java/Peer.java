import io.lettuce.core.RedisClient;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.SetArgs;
import io.lettuce.core.api.sync.RedisCommands;
import java.util.UUID;

/**
 * Lettuce, with the lock that people write by hand: SET NX PX with a random value, asked again every 50 ms, and a script
 * that compares before it deletes.
 */
public class Peer {
    private static final String RELEASE =
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
    private static final long PAUSE_MILLIS = 50;

    public static void main(String[] args) {
        RedisClient client = RedisClient.create("redis://" + args[1]);
        RedisCommands<String, String> commands = client.connect().sync();
        Driver.main(new Driver.Library() {
            private boolean take(String name, String value) {
                return "OK".equals(commands.set(name, value, SetArgs.Builder.nx().px(Driver.leaseMillis())));
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
                        Long deleted = commands.eval(RELEASE, ScriptOutputType.INTEGER, new String[] {name}, value);
                        if (deleted != 1) {
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
                client.shutdown();
            }
        }, args);
    }
}
