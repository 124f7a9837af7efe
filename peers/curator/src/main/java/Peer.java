import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Takes a lock with Curator, as often as it is told to.
 *
 * <pre>Peer contend SERVERS PATH mutex|read|write WITNESS TIMES   says "overlaps N"
 * Peer hold SERVERS PATH mutex|read|write                         holds until its standard input ends</pre>
 */
public class Peer {
    public static void main(String[] args) throws Exception {
        try (CuratorFramework client = CuratorFrameworkFactory.newClient(
                args[1], 15_000, 15_000, new ExponentialBackoffRetry(100, 10))) {
            client.start();
            client.blockUntilConnected();
            BufferedReader told = new BufferedReader(new InputStreamReader(System.in));
            switch (args[0]) {
                case "contend":
                    contend(lock(client, args[2], args[3]), Path.of(args[4]), Integer.parseInt(args[5]), told);
                    break;
                case "hold":
                    InterProcessLock lock = lock(client, args[2], args[3]);
                    lock.acquire();
                    say("held");
                    told.readLine();
                    lock.release();
                    say("released");
                    break;
                default:
                    throw new IllegalArgumentException(args[0]);
            }
        }
    }

    private static InterProcessLock lock(CuratorFramework client, String path, String kind) {
        switch (kind) {
            case "mutex":
                return new InterProcessMutex(client, path);
            case "read":
                return new InterProcessReadWriteLock(client, path).readLock();
            case "write":
                return new InterProcessReadWriteLock(client, path).writeLock();
            default:
                throw new IllegalArgumentException(kind);
        }
    }

    /** The holder makes a file that must not be there, and removes it. */
    private static void contend(InterProcessLock lock, Path witness, int times, BufferedReader told) throws Exception {
        say("ready");
        told.readLine();
        int overlaps = 0;
        for (int time = 0; time < times; time++) {
            lock.acquire();
            try {
                Files.createFile(witness);
                Files.delete(witness);
            } catch (FileAlreadyExistsException other) {
                overlaps++;
            }
            lock.release();
        }
        say("overlaps " + overlaps);
        // The other one goes on against nobody.
        told.readLine();
    }

    private static void say(String what) {
        System.out.println("@" + what);
        System.out.flush();
    }
}
