import java.net.URI;
import java.time.Duration;
import java.time.Instant;
import java.util.Optional;

import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.jdbctemplate.JdbcTemplateLockProvider;
import org.springframework.dao.DataAccessException;
import org.springframework.jdbc.core.JdbcTemplate;

/** ShedLock: a row for each lock in PostgreSQL, MySQL or MariaDB, with connections of a pool and the server's time. */
public class Peer {
    /** ShedLock does not wait: a client that wants to asks again after this long. */
    private static final long PAUSE_MILLIS = 100;
    private static final String TABLE = "CREATE TABLE IF NOT EXISTS shedlock(name VARCHAR(64) NOT NULL, "
            + "lock_until TIMESTAMP(3) NOT NULL, locked_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), "
            + "locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))";

    public static void main(String[] args) {
        HikariDataSource source = connect(URI.create(args[1]));
        JdbcTemplate template = new JdbcTemplate(source);
        makeTable(template);
        LockProvider provider = new JdbcTemplateLockProvider(
                JdbcTemplateLockProvider.Configuration.builder().withJdbcTemplate(template).usingDbTime().build());
        Driver.main(new Driver.Library() {
            private Optional<SimpleLock> ask(String name) {
                // What would renew it, `KeepAliveLockProvider`, wants a lease of 30 s at least.
                Duration lease = Duration.ofMillis(Driver.leaseMillis());
                return provider.lock(new LockConfiguration(Instant.now(), name, lease, Duration.ZERO));
            }

            @Override
            public Driver.Lock lock(String name) {
                return new Driver.Lock() {
                    private SimpleLock held;

                    @Override
                    public void lock() throws Exception {
                        Optional<SimpleLock> got = ask(name);
                        while (got.isEmpty()) {
                            Thread.sleep(PAUSE_MILLIS);
                            got = ask(name);
                        }
                        held = got.get();
                    }

                    @Override
                    public void unlock() {
                        held.unlock();
                    }
                };
            }

            @Override
            public boolean attempt(String name) {
                return ask(name).isPresent();
            }

            @Override
            public void close() {
                source.close();
            }
        }, args);
    }

    private static HikariDataSource connect(URI url) {
        HikariConfig config = new HikariConfig();
        String kind = url.getScheme().startsWith("postgres") ? "postgresql" : "mariadb";
        config.setJdbcUrl("jdbc:" + kind + "://" + url.getHost() + ":" + url.getPort() + url.getPath());
        String[] login = url.getUserInfo().split(":", 2);
        config.setUsername(login[0]);
        config.setPassword(login.length > 1 ? login[1] : null);
        return new HikariDataSource(config);
    }

    private static void makeTable(JdbcTemplate template) {
        try {
            template.execute(TABLE);
        } catch (DataAccessException error) {
            // On PostgreSQL two who make it at once may hinder each other; then it is there.
            template.execute(TABLE);
        }
    }
}
