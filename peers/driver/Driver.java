import static java.nio.file.StandardOpenOption.READ;
import static java.nio.file.StandardOpenOption.WRITE;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.Callable;
import java.util.concurrent.atomic.AtomicLong;

/** What every peer in Java does: see ../README.md. A library gives its locks; this times them. */
public final class Driver {
    private static final int WARM_UP = 300;
    /** How long a holder of many locks may take to give them back before it just ends, in nanoseconds. */
    private static final long RELEASE_LIMIT = 2_000_000_000L;

    /** A lock that is taken and given back by one thread. */
    public interface Lock {
        void lock() throws Exception;

        void unlock() throws Exception;
    }

    /** What is timed. */
    public interface Library extends AutoCloseable {
        Lock lock(String name) throws Exception;

        /** A lock that is held beside many of other names. */
        default Lock kept(String name) throws Exception {
            return lock(name);
        }

        /** An election: its lock is a term. */
        default Lock lead(String name) throws Exception {
            throw new UnsupportedOperationException("lead");
        }

        /** Whether a lock was taken. */
        default boolean attempt(String name) throws Exception {
            throw new UnsupportedOperationException("try");
        }

        /** The two locks of a read-write lock: to read and to write. */
        default Lock[] readWrite(String name) throws Exception {
            throw new UnsupportedOperationException("read");
        }
    }

    private final BufferedReader told = new BufferedReader(new InputStreamReader(System.in));

    /** For how long a client that dies still holds. */
    public static long leaseMillis() {
        return Long.parseLong(System.getenv().getOrDefault("LEASE_MS", "30000"));
    }

    /** Where the holder writes its number, and how often another one stood there in this turn. */
    private static final FileChannel HANDS = open("HANDS");
    private static final AtomicLong HANDED = new AtomicLong();

    private static FileChannel open(String variable) {
        String path = System.getenv(variable);
        try {
            return path == null ? null : FileChannel.open(Path.of(path), READ, WRITE);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static void note() throws IOException {
        if (HANDS == null) {
            return;
        }
        ByteBuffer number = ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN);
        HANDS.read(number, 0);
        int own = (int) ProcessHandle.current().pid();
        if (number.getInt(0) != own) {
            HANDED.incrementAndGet();
            HANDS.write(number.clear().putInt(own).flip(), 0);
        }
    }

    /** A number that nobody may change without the lock, from when the program is ready: see ../README.md. */
    private static final FileChannel COUNT = open("COUNT");
    private static volatile boolean begun;

    private static void add(boolean reads) throws IOException {
        if (COUNT == null || !begun) {
            return;
        }
        ByteBuffer number = ByteBuffer.allocate(12).order(ByteOrder.LITTLE_ENDIAN);
        COUNT.read(number, 0);
        if (number.getInt(8) != 0) {
            throw new IllegalStateException("the process " + number.getInt(8) + " holds the lock, too");
        }
        if (reads) {
            return;
        }
        ByteBuffer inside = ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN);
        COUNT.write(inside.putInt((int) ProcessHandle.current().pid()).flip(), 8);
        ByteBuffer sum = ByteBuffer.allocate(8).order(ByteOrder.LITTLE_ENDIAN);
        COUNT.read(sum, 0);
        COUNT.write(sum.putLong(0, sum.getLong(0) + 1).rewind(), 0);
        COUNT.write(ByteBuffer.allocate(4), 8);
    }

    private static long pair(Lock lock) throws Exception {
        return pair(lock, false);
    }

    private static long pair(Lock lock, boolean reads) throws Exception {
        long asked = System.nanoTime();
        lock.lock();
        long waited = System.nanoTime() - asked;
        note();
        add(reads);
        lock.unlock();
        return waited;
    }

    /** Each line that is read is a turn. */
    private void turns(Callable<String> turn) throws Exception {
        begun = true;
        System.out.println("ready");
        while (told.readLine() != null) {
            System.out.println(turn.call());
        }
    }

    /** Calls each work again and again in a thread of its own. A work says how long it waited. */
    private static String turn(List<Callable<Long>> works, long millis) throws Exception {
        HANDED.set(0);
        long start = System.nanoTime();
        List<List<Long>> waits = new ArrayList<>();
        List<Thread> threads = new ArrayList<>();
        for (Callable<Long> work : works) {
            List<Long> its = new ArrayList<>();
            waits.add(its);
            Thread thread = new Thread(() -> {
                try {
                    do {
                        its.add(work.call());
                    } while (System.nanoTime() - start < millis * 1_000_000);
                } catch (Exception error) {
                    end(error);
                }
            });
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        long time = System.nanoTime() - start;
        return summary(waits.stream().flatMap(List::stream).mapToLong(Long::longValue).toArray(), time);
    }

    private void timed(List<Callable<Long>> works, long millis) throws Exception {
        turns(() -> turn(works, millis));
    }

    private static String summary(long[] waits, long time) {
        Arrays.sort(waits);
        return String.format(Locale.ROOT,
                "{\"pairs\": %d, \"seconds\": %f, \"waits_us\": {\"p50\": %f, \"p99\": %f, \"max\": %f}, \"handed\": %s}",
                waits.length, time / 1e9, at(waits, 0.5), at(waits, 0.99), at(waits, 1), HANDS == null ? null : HANDED);
    }

    private static double at(long[] sorted, double part) {
        return sorted.length == 0 ? 0 : sorted[Math.min(sorted.length - 1, (int) (sorted.length * part))] / 1e3;
    }

    private void drive(Library library, String[] args) throws Exception {
        String name = args[2];
        if (!args[0].equals("hold")) {
            Lock warm = library.lock(name + "-warm");
            for (int i = 0; i < WARM_UP; i++) {
                pair(warm);
            }
        }
        switch (args[0]) {
            case "pairs": {
                boolean distinct = Arrays.asList(args).contains("distinct");
                List<Callable<Long>> works = new ArrayList<>();
                for (int task = 0; task < Integer.parseInt(args[3]); task++) {
                    Lock lock = library.lock(distinct ? name + "-" + task : name);
                    works.add(() -> pair(lock));
                }
                timed(works, Long.parseLong(args[4]));
                break;
            }
            case "lead": {
                Lock term = library.lead(name);
                timed(List.of(() -> pair(term)), Long.parseLong(args[4]));
                break;
            }
            case "try": {
                Lock held = library.lock(name);
                held.lock();
                // Other threads try: the holder might re-enter.
                List<Callable<Long>> works = List.of(() -> {
                    long asked = System.nanoTime();
                    if (library.attempt(name)) {
                        throw new IllegalStateException("a lock that is held was taken");
                    }
                    return System.nanoTime() - asked;
                });
                // A library that cannot try says so before it is ready.
                turn(works, 0);
                timed(works, Long.parseLong(args[3]));
                held.unlock();
                break;
            }
            case "read": {
                // Nine readers for each writer.
                List<Callable<Long>> works = new ArrayList<>();
                for (int task = 0; task < Integer.parseInt(args[3]); task++) {
                    Lock[] locks = library.readWrite(name);
                    int[] turn = {task};
                    works.add(() -> {
                        boolean reads = turn[0]++ % 10 != 9;
                        return pair(locks[reads ? 0 : 1], reads);
                    });
                }
                timed(works, Long.parseLong(args[4]));
                break;
            }
            case "hold": {
                int count = Integer.parseInt(args[3]);
                List<Lock> locks = new ArrayList<>();
                for (int i = 0; i < count; i++) {
                    Lock lock = library.kept(name + "-" + i);
                    lock.lock();
                    locks.add(lock);
                }
                turns(() -> summary(new long[count], 0));
                long start = System.nanoTime();
                for (Lock lock : locks) {
                    if (System.nanoTime() - start > RELEASE_LIMIT) {
                        break;
                    }
                    lock.unlock();
                }
                break;
            }
            case "wait": {
                Lock lock = library.lock(name);
                System.out.println("ready");
                while (told.readLine() != null) {
                    long asked = System.nanoTime();
                    lock.lock();
                    long waited = System.nanoTime() - asked;
                    System.out.println(summary(new long[] {waited}, waited));
                    lock.unlock();
                }
                break;
            }
            default:
                throw new IllegalArgumentException(args[0]);
        }
    }

    /** Does what the arguments say. */
    public static void main(Library library, String[] args) {
        try (library) {
            new Driver().drive(library, args);
        } catch (Exception error) {
            end(error);
        }
        // Some libraries leave threads behind.
        Runtime.getRuntime().halt(0);
    }

    private static void end(Exception error) {
        boolean missing = error instanceof UnsupportedOperationException;
        System.err.println(missing ? "there is no " + error.getMessage() + " of this library" : error);
        Runtime.getRuntime().halt(missing ? 3 : 1);
    }
}
