package org.orbitmq.interop;

import java.lang.reflect.Field;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.common.ServiceThread;

/**
 * Wakes threads that were told to stop: a client of the 5.x line that shuts down waits up to three
 * seconds for the one that waits for events of its connections.
 */
final class StoppedThreads {
    private static final String NAME = "NettyEventExecutor";
    private static final long INTERVAL_MS = 20;
    private static final int THREADS_MAX = 10_000;

    private final Thread[] threads = new Thread[THREADS_MAX];
    private final Field target;

    private StoppedThreads(Field target) {
        this.target = target;
    }

    /** Looks for such threads from now on; on a Java that hides whom a thread runs, clients take longer. */
    static void wakeThem() {
        Field target;
        try {
            target = Thread.class.getDeclaredField("target");
        } catch (NoSuchFieldException hidden) {
            return;
        }
        target.setAccessible(true);
        StoppedThreads waking = new StoppedThreads(target);
        Executors.newSingleThreadScheduledExecutor()
            .scheduleWithFixedDelay(waking::wake, INTERVAL_MS, INTERVAL_MS, TimeUnit.MILLISECONDS);
    }

    private void wake() {
        int count = Thread.enumerate(threads);
        for (int number = 0; number < count; number++) {
            if (threads[number].getName().startsWith(NAME) && isStopped(threads[number])) {
                threads[number].interrupt();
            }
            threads[number] = null;
        }
    }

    private boolean isStopped(Thread thread) {
        try {
            return target.get(thread) instanceof ServiceThread service && service.isStopped();
        } catch (IllegalAccessException impossible) {
            throw new IllegalStateException(impossible);
        }
    }
}
