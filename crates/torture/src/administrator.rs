//! What administrators do to servers that go on, and how they set it right.

use std::{process::Command, time::Duration};

use test_servers::{Disk, Error, Server, wait_for};

/// The user that clients log in as where administrators change what it may.
pub(crate) const USER: (&str, &str) = ("torture", "right");

/// Does something to a server that goes on.
pub(crate) fn trouble(server: &Server, fault: &str) -> Result<(), Error> {
    let ask = |args: &[&str]| server.ask(args).map(drop);
    let user = USER.0;
    match (server.store(), fault) {
        (_, "slow-disk") => server.set_disk(Disk::Slow(Duration::from_millis(400))),
        (_, "full-disk") => server.set_disk(Disk::Full),
        (_, "failing-disk") => server.set_disk(Disk::Failing),
        // Those who are connected are let go, too: what they say next is their new password.
        ("redis", "password") => {
            ask(&["ACL", "SETUSER", user, "resetpass", ">other"])?;
            ask(&["CLIENT", "KILL", "USER", user])
        }
        // Here anybody is let in who may log in at all.
        ("postgres", "password") => {
            ask(&["-c", &format!("ALTER ROLE {user} NOLOGIN")])?;
            trouble(server, "kill-sessions")
        }
        ("postgres", "no-connections") => {
            ask(&["-c", &format!("ALTER ROLE {user} CONNECTION LIMIT 3")])?;
            trouble(server, "kill-sessions")
        }
        ("mariadb", "password") => {
            ask(&["-e", &format!("SET PASSWORD FOR {user} = PASSWORD('other')")])?;
            trouble(server, "kill-sessions")
        }
        ("mariadb", "no-connections") => {
            ask(&["-e", &format!("ALTER USER {user} WITH MAX_USER_CONNECTIONS 3")])?;
            trouble(server, "kill-sessions")
        }
        // Those who are connected have seen the right one: they come again.
        (store, "certificate") => {
            server.show_certificate(true)?;
            match store {
                "etcd" => server.restart(),
                // It was started again just now.
                "zookeeper" => Ok(()),
                _ => trouble(server, "kill-sessions"),
            }
        }
        // Not by `ask`, which checks certificates.
        ("redis", "kill-sessions") => server.command(&["CLIENT", "KILL", "TYPE", "normal"]).map(drop),
        ("redis", "kill-listeners") => ask(&["CLIENT", "KILL", "TYPE", "pubsub"]),
        ("redis", "forget-scripts") => ask(&["SCRIPT", "FLUSH"]),
        ("redis", "out-of-memory") => ask(&["CONFIG", "SET", "maxmemory", "1"]),
        // One that is under way already is as good.
        ("redis", "rewrite-log") => {
            let _ = ask(&["BGREWRITEAOF"]);
            Ok(())
        }
        ("redis", "save") => {
            let _ = ask(&["BGSAVE", "SCHEDULE"]);
            Ok(())
        }
        ("redis", "pause-clients") => ask(&["CLIENT", "PAUSE", "3000", "ALL"]),
        ("redis", "refuse-writes") => ask(&["CONFIG", "SET", "min-replicas-to-write", "9"]),
        // Those who are connected stay; two, so that the fault can be healed.
        ("redis", "no-connections") => {
            ask(&["CONFIG", "SET", "maxclients", "2"])?;
            ask(&["CLIENT", "KILL", "TYPE", "normal"])
        }
        ("etcd", "compact") => {
            let status = server.ask(&["endpoint", "status", "-w", "fields"])?;
            let revision = status.lines().find_map(|line| line.strip_prefix("\"Revision\" :"));
            ask(&["compact", revision.unwrap_or_default().trim()])
        }
        ("etcd", "defragment") => ask(&["defrag"]),
        ("postgres", "kill-sessions") => ask(&[
            "-c",
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'",
        ]),
        ("postgres", "kill-listeners") => ask(&[
            "-c",
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE pid <> pg_backend_pid() AND query ILIKE '%LISTEN%'",
        ]),
        ("postgres", "kill-backend") => {
            let pid = server.ask(&[
                "-c",
                "SELECT pid FROM pg_stat_activity \
                 WHERE pid <> pg_backend_pid() AND backend_type = 'client backend' LIMIT 1",
            ])?;
            // As the kernel does when memory is short: the server restarts all of its sessions.
            if let Some(pid) = pid.split_whitespace().find(|word| word.parse::<u32>().is_ok()) {
                let killed = Command::new("kill").args(["-KILL", pid]).status();
                killed.map_err(|error| Error::new(error.to_string()))?;
            }
            Ok(())
        }
        ("postgres", "checkpoint") => ask(&["-c", "CHECKPOINT"]),
        ("postgres", "vacuum") => ask(&["-c", "VACUUM FULL"]),
        ("mariadb", "flush") => ask(&["-e", "FLUSH TABLES; FLUSH LOGS; FLUSH HOSTS"]),
        ("mariadb", "kill-sessions") => {
            let sessions = server.ask(&[
                "-e",
                "SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND command <> 'Daemon'",
            ])?;
            let kills: Vec<_> =
                sessions.split_whitespace().map(|session| format!("KILL {session}")).collect();
            // Some may have ended meanwhile.
            let _ = server.ask(&["--force", "-e", &kills.join("; ")]);
            Ok(())
        }
        (store, fault) => Err(Error::new(format!("{store} knows no fault {fault:?}"))),
    }
}

/// Ends what [`trouble`] began.
pub(crate) fn relieve(server: &Server, fault: &str) -> Result<(), Error> {
    let set = |name: &str, value: &str| server.ask(&["CONFIG", "SET", name, value]).map(drop);
    match (server.store(), fault) {
        (_, "certificate") => server.show_certificate(false),
        ("redis", "out-of-memory") => set("maxmemory", "0"),
        // Those who ask again and again may be there first, again and again: then only a restart helps. The command line
        // client would print that it was refused, and end well.
        ("redis", "no-connections") => wait_for("clients may connect", Duration::from_secs(2), || {
            server.command(&["CONFIG", "SET", "maxclients", "10000"]).is_ok()
        })
        .or_else(|_| server.restart()),
        ("redis", "refuse-writes") => set("min-replicas-to-write", "0"),
        ("redis", "pause-clients") => server.ask(&["CLIENT", "UNPAUSE"]).map(drop),
        ("redis", "password") => {
            server.ask(&["ACL", "SETUSER", USER.0, "resetpass", &format!(">{}", USER.1)]).map(drop)
        }
        ("postgres", "password") => server.ask(&["-c", &format!("ALTER ROLE {} LOGIN", USER.0)]).map(drop),
        ("postgres", "no-connections") => {
            server.ask(&["-c", &format!("ALTER ROLE {} CONNECTION LIMIT -1", USER.0)]).map(drop)
        }
        ("mariadb", "password") => {
            let (user, password) = USER;
            server.ask(&["-e", &format!("SET PASSWORD FOR {user} = PASSWORD('{password}')")]).map(drop)
        }
        ("mariadb", "no-connections") => {
            server.ask(&["-e", &format!("ALTER USER {} WITH MAX_USER_CONNECTIONS 0", USER.0)]).map(drop)
        }
        // A server that killed its backends takes a moment.
        ("postgres", "kill-backend") => server.wait_ready(),
        _ => Ok(()),
    }
}
