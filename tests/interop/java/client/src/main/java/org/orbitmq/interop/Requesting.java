package org.orbitmq.interop;

import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Requests by message: {@code open_replier} replies to each message of a topic until {@code
 * close_replier}, {@code request} sends requests and shows the replies.
 *
 * <p>A replier keeps the errors that its replies ran into, which {@code close_replier} shows.
 */
final class Requesting {
    private static final int HEARTBEAT_INTERVAL_MS = 1_000;
    private static final int CLOSE_WAIT_MS = 20;
    private static final int CLOSE_WAITS_MAX = 1_000;
    private static final Map<String, Requesting> OPEN = new ConcurrentHashMap<>();

    private final List<String> errors = new ArrayList<>();
    private final AtomicInteger running = new AtomicInteger();
    private final DefaultMQProducer producer;
    private final DefaultMQPushConsumer consumer;

    private Requesting(JSONObject args) throws Exception {
        producer = new DefaultMQProducer("replies-of-" + args.getString("group"));
        producer.setNamesrvAddr(args.getString("namesrv"));
        producer.setInstanceName(UUID.randomUUID().toString());
        producer.setSendMsgTimeout(Producing.CALL_TIMEOUT_MS);
        producer.setMqClientApiTimeout(Producing.CALL_TIMEOUT_MS);
        producer.start();
        consumer = new DefaultMQPushConsumer(args.getString("group"));
        consumer.setNamesrvAddr(args.getString("namesrv"));
        consumer.setInstanceName(UUID.randomUUID().toString());
        consumer.setMqClientApiTimeout(Producing.CALL_TIMEOUT_MS);
        consumer.setHeartbeatBrokerInterval(HEARTBEAT_INTERVAL_MS);
        consumer.setPollNameServerInterval(HEARTBEAT_INTERVAL_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args.getString("topic"), "*");
        long pauseMs = args.getLongValue("pause_ms");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> reply(message, pauseMs));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }

    static void register(Map<String, Scenario> scenarios) {
        scenarios.put("request", Requesting::request);
        scenarios.put("open_replier", args -> {
            OPEN.put(args.getString("replier"), new Requesting(args));
            return Map.of();
        });
        scenarios.put("close_replier", args -> OPEN.remove(args.getString("replier")).close());
    }

    private static Object request(JSONObject args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("requests-" + UUID.randomUUID());
        producer.setNamesrvAddr(args.getString("namesrv"));
        producer.setInstanceName(UUID.randomUUID().toString());
        producer.setMqClientApiTimeout(Producing.CALL_TIMEOUT_MS);
        producer.start();
        List<JSONObject> replies = new ArrayList<>();
        try {
            for (Object body : args.getJSONArray("bodies")) {
                byte[] bytes = body.toString().getBytes(StandardCharsets.UTF_8);
                Message asked = new Message(args.getString("topic"), "tag", bytes);
                Message reply = producer.request(asked, args.getLongValue("timeout_ms"));
                JSONObject shown = new JSONObject();
                shown.put("body", new String(reply.getBody(), StandardCharsets.UTF_8));
                shown.put("properties", reply.getProperties());
                replies.add(shown);
            }
        } finally {
            producer.shutdown();
        }
        return Map.of("replies", replies);
    }

    private void reply(MessageExt request, long pauseMs) {
        running.incrementAndGet();
        try {
            Thread.sleep(pauseMs);
            String text = "re: " + new String(request.getBody(), StandardCharsets.UTF_8);
            Message reply = MessageUtil.createReplyMessage(request, text.getBytes(StandardCharsets.UTF_8));
            reply.putUserProperty("replier", "java");
            producer.send(reply);
        } catch (Exception failure) {
            synchronized (errors) {
                errors.add(failure + "; cause: " + failure.getCause());
            }
        } finally {
            running.decrementAndGet();
        }
    }

    /** Shuts it down once the replies under way are sent, or could not be. */
    private Object close() throws InterruptedException {
        for (int waits = 0; running.get() > 0 && waits < CLOSE_WAITS_MAX; waits++) {
            Thread.sleep(CLOSE_WAIT_MS);
        }
        consumer.shutdown();
        producer.shutdown();
        synchronized (errors) {
            return Map.of("errors", new ArrayList<>(errors));
        }
    }
}
