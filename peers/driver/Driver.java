import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.Callable;

/** What every peer in Java does: see ../README.md. A library gives its locks; this times them. */
public final class Driver {
    private static final int WARM_UP = 300;

    /** A lock that is taken and given back by one thread. */
    public interface Lock {
        void lock() throws Exception;

        void unlock() throws Exception;
    }

    /** What is timed. */
    public interface Library extends AutoCloseable {
        Lock lock(String name) throws Exception;

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

    private static long pair(Lock lock) throws Exception {
        long asked = System.nanoTime();
        lock.lock();
        long waited = System.nanoTime() - asked;
        lock.unlock();
        return waited;
    }

    private void ready() throws Exception {
        System.out.println("ready");
        told.readLine();
    }

    /** Calls each work again and again in a thread of its own. A work says how long it waited. */
    private void timed(List<Callable<Long>> works, long millis) throws Exception {
        ready();
        long start = System.nanoTime();
        List<List<Long>> waits = new ArrayList<>();
        List<Thread> threads = new ArrayList<>();
        for (Callable<Long> work : works) {
            List<Long> its = new ArrayList<>();
            waits.add(its);
            Thread thread = new Thread(() -> {
                try {
                    while (System.nanoTime() - start < millis * 1_000_000) {
                        its.add(work.call());
                    }
                } catch (Exception error) {
                    System.err.println(error);
                    Runtime.getRuntime().halt(error instanceof UnsupportedOperationException ? 3 : 1);
                }
            });
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        double seconds = (System.nanoTime() - start) / 1e9;
        long[] each = waits.stream().flatMap(List::stream).mapToLong(Long::longValue).sorted().toArray();
        System.out.printf(Locale.ROOT,
                "{\"pairs\": %d, \"seconds\": %f, \"waits_us\": {\"p50\": %f, \"p99\": %f, \"max\": %f}}%n",
                each.length, seconds, at(each, 0.5), at(each, 0.99), at(each, 1));
    }

    private static double at(long[] sorted, double part) {
        return sorted.length == 0 ? 0 : sorted[Math.min(sorted.length - 1, (int) (sorted.length * part))] / 1e3;
    }

    private void drive(Library library, String[] args) throws Exception {
        String name = args[2];
        switch (args[0]) {
            case "pairs": {
                Lock warm = library.lock(name + "-warm");
                for (int i = 0; i < WARM_UP; i++) {
                    pair(warm);
                }
                boolean distinct = Arrays.asList(args).contains("distinct");
                List<Callable<Long>> works = new ArrayList<>();
                for (int task = 0; task < Integer.parseInt(args[3]); task++) {
                    Lock lock = library.lock(distinct ? name + "-" + task : name);
                    works.add(() -> pair(lock));
                }
                timed(works, Long.parseLong(args[4]));
                break;
            }
            case "try": {
                Lock held = library.lock(name);
                held.lock();
                timed(List.of(() -> {
                    long asked = System.nanoTime();
                    if (library.attempt(name)) {
                        throw new IllegalStateException("a lock that is held was taken");
                    }
                    return System.nanoTime() - asked;
                }), Long.parseLong(args[3]));
                held.unlock();
                break;
            }
            case "read": {
                // Nine readers for each writer.
                List<Callable<Long>> works = new ArrayList<>();
                for (int task = 0; task < Integer.parseInt(args[3]); task++) {
                    Lock[] locks = library.readWrite(name);
                    int[] turn = {task};
                    works.add(() -> pair(locks[turn[0]++ % 10 == 9 ? 1 : 0]));
                }
                timed(works, Long.parseLong(args[4]));
                break;
            }
            case "hold": {
                int count = Integer.parseInt(args[3]);
                List<Lock> locks = new ArrayList<>();
                for (int i = 0; i < count; i++) {
                    Lock lock = library.lock(name + "-" + i);
                    lock.lock();
                    locks.add(lock);
                }
                ready();
                for (Lock lock : locks) {
                    lock.unlock();
                }
                System.out.println("{\"pairs\": " + count + ", \"seconds\": 0}");
                break;
            }
            default:
                throw new UnsupportedOperationException(args[0]);
        }
    }

    /** Does what the arguments say. */
    public static void main(Library library, String[] args) throws Exception {
        try (library) {
            new Driver().drive(library, args);
        } catch (UnsupportedOperationException missing) {
            System.err.println("there is no " + missing.getMessage() + " of this library");
            Runtime.getRuntime().halt(3);
        }
        System.out.flush();
        // Some libraries leave threads behind.
        Runtime.getRuntime().halt(0);
    }
}
