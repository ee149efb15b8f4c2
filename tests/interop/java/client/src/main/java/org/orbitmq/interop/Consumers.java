package org.orbitmq.interop;

import com.alibaba.fastjson.JSONObject;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Consumers that live on between requests: {@code open_consumer}, then {@code received} any number of
 * times, which waits for a number of messages and shows all so far, then {@code close_consumer}, which
 * shows all of them.
 */
final class Consumers {
    private static final int HEARTBEAT_INTERVAL_MS = 1_000;
    private static final int PULL_AGAIN_MS = 500;
    private static final int POLL_TIMEOUT_MS = 100;
    private static final int THREADS = 4;
    private static final Map<String, Consumers> OPEN = new ConcurrentHashMap<>();

    private final JSONObject args;
    private final List<JSONObject> received = new ArrayList<>();
    private volatile boolean closing;
    private Runnable shutdown;

    private Consumers(JSONObject args) {
        this.args = args;
    }

    static void register(Map<String, Scenario> scenarios) {
        scenarios.put("open_consumer", Consumers::open);
        scenarios.put("received", asked -> OPEN.get(asked.getString("consumer")).received(asked));
        scenarios.put("close_consumer", asked -> OPEN.remove(asked.getString("consumer")).close());
    }

    private static Object open(JSONObject args) throws Exception {
        Consumers made = new Consumers(args);
        if ("lite".equals(args.getString("kind"))) {
            made.openLite();
        } else {
            made.openPush();
        }
        OPEN.put(args.getString("consumer"), made);
        return Map.of();
    }

    private void openPush() throws Exception {
        String traceTopic = args.getString("trace_topic");
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer(args.getString("group"), traceTopic != null, traceTopic);
        configure(consumer);
        consumer.setConsumeThreadMin(THREADS);
        consumer.setConsumeThreadMax(THREADS);
        consumer.setPullTimeDelayMillsWhenException(PULL_AGAIN_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf(args.getString("start")));
        if (args.containsKey("start_time")) {
            consumer.setConsumeTimestamp(args.getString("start_time"));
        }
        if (args.containsKey("attempts_max")) {
            consumer.setMaxReconsumeTimes(args.getIntValue("attempts_max") - 1);
        }
        if (args.getBooleanValue("broadcast")) {
            broadcast(consumer);
        }
        if (args.containsKey("sql")) {
            consumer.subscribe(args.getString("topic"), MessageSelector.bySql(args.getString("sql")));
        } else if (args.containsKey("filter_class")) {
            consumer.subscribe(
                args.getString("topic"), args.getString("filter_class"), args.getString("source"));
        } else {
            consumer.subscribe(args.getString("topic"), args.getString("expression"));
        }
        if ("orderly".equals(args.getString("kind"))) {
            consumer.setSuspendCurrentQueueTimeMillis(POLL_TIMEOUT_MS);
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                take(messages)
                    ? ConsumeOrderlyStatus.SUCCESS
                    : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
                take(messages)
                    ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                    : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        }
        consumer.start();
        shutdown = consumer::shutdown;
    }

    private void openLite() throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(args.getString("group"));
        configure(consumer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf(args.getString("start")));
        consumer.setAutoCommit(true);
        consumer.subscribe(args.getString("topic"), args.getString("expression"));
        consumer.start();
        Thread polling = new Thread(() -> {
            while (!closing) {
                take(consumer.poll(POLL_TIMEOUT_MS));
            }
            consumer.shutdown();
        });
        polling.start();
        shutdown = () -> {
            try {
                polling.join();
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
            }
        };
    }

    private void configure(ClientConfig consumer) {
        consumer.setNamesrvAddr(args.getString("namesrv"));
        consumer.setInstanceName(UUID.randomUUID().toString());
        consumer.setMqClientApiTimeout(Producing.CALL_TIMEOUT_MS);
        consumer.setHeartbeatBrokerInterval(HEARTBEAT_INTERVAL_MS);
        consumer.setPollNameServerInterval(HEARTBEAT_INTERVAL_MS);
        consumer.setPersistConsumerOffsetInterval(HEARTBEAT_INTERVAL_MS);
    }

    /** The enumeration lies in another package in each line. */
    private static void broadcast(DefaultMQPushConsumer consumer) throws Exception {
        for (Method method : DefaultMQPushConsumer.class.getMethods()) {
            if ("setMessageModel".equals(method.getName())) {
                for (Object model : method.getParameterTypes()[0].getEnumConstants()) {
                    if ("BROADCASTING".equals(((Enum<?>) model).name())) {
                        method.invoke(consumer, model);
                    }
                }
            }
        }
    }

    /** Keeps messages; false when one of them is to come again. */
    private boolean take(List<MessageExt> messages) {
        boolean isDone = true;
        synchronized (received) {
            for (MessageExt message : messages) {
                received.add(Consuming.shown(message));
                isDone &= message.getReconsumeTimes() >= args.getIntValue("failures");
            }
            received.notifyAll();
        }
        return isDone;
    }

    private Object received(JSONObject asked) throws InterruptedException {
        long deadline = System.nanoTime() + asked.getLongValue("timeout_ms") * 1_000_000;
        synchronized (received) {
            while (received.size() < asked.getIntValue("count")) {
                long left = (deadline - System.nanoTime()) / 1_000_000;
                if (left <= 0) {
                    break;
                }
                received.wait(left);
            }
            return Map.of("messages", new ArrayList<>(received));
        }
    }

    private Object close() {
        closing = true;
        shutdown.run();
        synchronized (received) {
            return Map.of("messages", new ArrayList<>(received));
        }
    }
}
