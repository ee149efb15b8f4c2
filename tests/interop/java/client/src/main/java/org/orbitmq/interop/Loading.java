package org.orbitmq.interop;

import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Load that goes on whatever happens to the broker: {@code load_start}, {@code load_progress} any
 * number of times, {@code load_stop} for the verdict.
 *
 * <p>Each producer sends numbers to one queue, one after the other, and sends a number again until
 * it is acknowledged. Ordered consumers note what stands at each offset. A consumer may go back in a
 * queue after a failure, never forward over something.
 */
final class Loading {
    private static final Map<String, Loading> RUNNING = new ConcurrentHashMap<>();
    private static final int CLIENT_INTERVAL_MS = 500;
    private static final int SEND_TIMEOUT_MS = 3_000;
    private static final int PRODUCERS_PER_CLIENT = 8;
    private static final int BATCH_MAX = 32;
    private static final int FAULTS_SHOWN = 20;

    private final JSONObject args;
    private final Queue[] queues;
    private final AtomicLong acked = new AtomicLong();
    private final AtomicLong failed = new AtomicLong();
    private final AtomicLong received = new AtomicLong();
    private final List<String> faults = new ArrayList<>();
    private final List<DefaultMQProducer> producers = new ArrayList<>();
    private final List<DefaultMQPushConsumer> consumers = new ArrayList<>();
    private final List<Thread> senders = new ArrayList<>();
    private volatile boolean stopping;

    private Loading(JSONObject args) {
        this.args = args;
        queues = new Queue[args.getIntValue("queues")];
        Arrays.setAll(queues, Queue::new);
    }

    static void register(Map<String, Scenario> scenarios) {
        scenarios.put("load_start", Loading::start);
        scenarios.put("load_progress", asked -> RUNNING.get(asked.getString("load")).progress());
        scenarios.put(
            "load_stop",
            asked -> RUNNING.remove(asked.getString("load")).stop(asked.getLongValue("timeout_ms")));
    }

    private static Object start(JSONObject args) throws Exception {
        Loading made = new Loading(args);
        for (int number = 0; number < args.getIntValue("consumers"); number++) {
            made.startConsumer();
        }
        for (int number = 0; number < args.getIntValue("producers"); number++) {
            made.startProducer(number);
        }
        RUNNING.put(args.getString("load"), made);
        return made.progress();
    }

    private void startConsumer() throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args.getString("group"));
        consumer.setNamesrvAddr(args.getString("namesrv"));
        consumer.setInstanceName(UUID.randomUUID().toString());
        consumer.setHeartbeatBrokerInterval(CLIENT_INTERVAL_MS);
        consumer.setPollNameServerInterval(CLIENT_INTERVAL_MS);
        consumer.setPersistConsumerOffsetInterval(CLIENT_INTERVAL_MS);
        consumer.setPullTimeDelayMillsWhenException(CLIENT_INTERVAL_MS);
        consumer.setConsumeThreadMin(2);
        consumer.setConsumeThreadMax(2);
        consumer.setConsumeMessageBatchMaxSize(BATCH_MAX);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args.getString("topic"), "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            for (MessageExt message : messages) {
                queues[message.getQueueId()].received(
                    (int) message.getQueueOffset(),
                    Long.parseLong(new String(message.getBody(), StandardCharsets.UTF_8)));
                received.incrementAndGet();
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        consumers.add(consumer);
    }

    private void startProducer(int number) throws Exception {
        String topic = args.getString("topic");
        DefaultMQProducer producer = new DefaultMQProducer(topic + "-producer-" + number);
        producer.setNamesrvAddr(args.getString("namesrv"));
        producer.setInstanceName(topic + "-" + number / PRODUCERS_PER_CLIENT);
        producer.setPollNameServerInterval(CLIENT_INTERVAL_MS);
        producer.setHeartbeatBrokerInterval(CLIENT_INTERVAL_MS);
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        producers.add(producer);
        int queueId = number % queues.length;
        MessageQueue queue = new MessageQueue(topic, args.getString("broker"), queueId);
        Thread sender = new Thread(() -> send(producer, queue, number), "sender-" + number);
        senders.add(sender);
        sender.start();
    }

    private void send(DefaultMQProducer producer, MessageQueue queue, int number) {
        for (long next = 0; !stopping; next++) {
            long id = ((long) number << 32) | next;
            byte[] body = Long.toString(id).getBytes(StandardCharsets.UTF_8);
            boolean isAcked = false;
            while (!isAcked && !stopping) {
                try {
                    SendResult sent =
                        producer.send(new Message(queue.getTopic(), body), queue, SEND_TIMEOUT_MS);
                    isAcked = sent.getSendStatus() == SendStatus.SEND_OK;
                    if (isAcked) {
                        queues[queue.getQueueId()].acked((int) sent.getQueueOffset(), id);
                        acked.incrementAndGet();
                    }
                } catch (Exception failure) {
                    failed.incrementAndGet();
                }
                pause(args.getLongValue("pause_ms"));
            }
        }
    }

    private Object progress() {
        return Map.of("acked", acked.get(), "failed", failed.get(), "received", received.get());
    }

    private Object stop(long timeoutMs) throws InterruptedException {
        stopping = true;
        for (Thread sender : senders) {
            sender.join();
        }
        long deadline = System.nanoTime() + timeoutMs * 1_000_000;
        long missing = missing();
        while (missing > 0 && System.nanoTime() < deadline) {
            pause(CLIENT_INTERVAL_MS / 10);
            missing = missing();
        }
        consumers.forEach(DefaultMQPushConsumer::shutdown);
        producers.forEach(DefaultMQProducer::shutdown);
        for (Queue queue : queues) {
            queue.checkOrder();
        }
        synchronized (faults) {
            return Map.of(
                "acked", acked.get(),
                "failed", failed.get(),
                "received", received.get(),
                "missing", missing,
                "faults", new ArrayList<>(faults));
        }
    }

    private long missing() {
        return Arrays.stream(queues).mapToLong(Queue::missing).sum();
    }

    private void fault(String text) {
        synchronized (faults) {
            if (faults.size() < FAULTS_SHOWN) {
                faults.add(text);
            }
        }
    }

    private static void pause(long milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    /** What is known of one queue: at each offset the acknowledged and the received number. */
    private final class Queue {
        private static final long NONE = -1;
        private final int queueId;
        private long[] acked = {};
        private long[] received = {};
        private int last = -1;

        Queue(int queueId) {
            this.queueId = queueId;
        }

        synchronized void acked(int offset, long id) {
            acked = note(acked, offset, id, "acknowledged");
        }

        synchronized void received(int offset, long id) {
            if (offset > last + 1) {
                fault("queue " + queueId + ": from offset " + last + " on to " + offset);
            }
            last = offset;
            received = note(received, offset, id, "received");
        }

        private long[] note(long[] noted, int offset, long id, String what) {
            long[] grown = noted;
            if (offset >= noted.length) {
                grown = Arrays.copyOf(noted, 2 * offset + 1024);
                Arrays.fill(grown, noted.length, grown.length, NONE);
            }
            if (grown[offset] != NONE && grown[offset] != id) {
                fault("queue " + queueId + " offset " + offset + ": " + what + " as "
                    + grown[offset] + " and as " + id);
            }
            grown[offset] = id;
            return grown;
        }

        synchronized long missing() {
            long missing = 0;
            for (int offset = 0; offset < acked.length; offset++) {
                boolean isReceived = offset < received.length && received[offset] != NONE;
                missing += acked[offset] != NONE && !isReceived ? 1 : 0;
            }
            return missing;
        }

        /** Each producer's numbers stand in their order, and what was acknowledged stands there. */
        synchronized void checkOrder() {
            Map<Long, Long> lastOf = new HashMap<>();
            for (int offset = 0; offset < received.length; offset++) {
                long id = received[offset];
                if (id == NONE) {
                    continue;
                }
                long before = lastOf.getOrDefault(id >> 32, NONE);
                if (before != NONE && id < before) {
                    fault("queue " + queueId + " offset " + offset + ": " + id + " after " + before);
                }
                lastOf.put(id >> 32, id);
                if (offset < acked.length && acked[offset] != NONE && acked[offset] != id) {
                    fault("queue " + queueId + " offset " + offset + ": acknowledged as "
                        + acked[offset] + ", received as " + id);
                }
            }
        }
    }
}
