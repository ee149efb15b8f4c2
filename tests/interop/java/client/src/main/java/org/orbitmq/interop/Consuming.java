package org.orbitmq.interop;

import com.alibaba.fastjson.JSONObject;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Receiving: {@code consume} runs a push consumer until enough messages came or time is up.
 *
 * <p>A message that comes twice, as brokers do not rule out, is shown twice and counts once.
 */
final class Consuming {
    private static final int HEARTBEAT_INTERVAL_MS = 2_000;
    private static final int SHOWN_BYTES_MAX = 64 << 10;

    private Consuming() {
    }

    static void register(Map<String, Scenario> scenarios) {
        scenarios.put("consume", Consuming::consume);
    }

    private static Object consume(JSONObject args) throws Exception {
        List<JSONObject> received = new ArrayList<>();
        CountDownLatch missing = new CountDownLatch(args.getIntValue("count"));
        Set<String> seen = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args.getString("group"));
        consumer.setNamesrvAddr(args.getString("namesrv"));
        consumer.setInstanceName(UUID.randomUUID().toString());
        consumer.setMqClientApiTimeout(Producing.CALL_TIMEOUT_MS);
        // A 5.x consumer whose first heartbeat and first rebalance meet tells the broker its new
        // subscription with the next heartbeat only, and gets nothing until then.
        consumer.setHeartbeatBrokerInterval(HEARTBEAT_INTERVAL_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args.getString("topic"), args.getString("expression"));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                synchronized (received) {
                    received.add(shown(message));
                }
                if (seen.add(message.getMsgId())) {
                    missing.countDown();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            missing.await(args.getLongValue("timeout_ms"), TimeUnit.MILLISECONDS);
        } finally {
            consumer.shutdown();
        }
        synchronized (received) {
            return Map.of("messages", new ArrayList<>(received));
        }
    }

    /** A message as the test sees it; of a large body there is only the digest. */
    static JSONObject shown(MessageExt message) {
        // A body without bytes is read as none.
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
        JSONObject shown = new JSONObject();
        shown.put("topic", message.getTopic());
        shown.put("body", text(body));
        shown.put("body_bytes", body.length);
        shown.put("body_digest", digest(body));
        shown.put("tags", message.getTags());
        shown.put("keys", message.getKeys());
        shown.put("flag", message.getFlag());
        shown.put("record_bytes", message.getStoreSize());
        shown.put("properties", message.getProperties());
        shown.put("message_id", message.getMsgId());
        shown.put("queue_id", message.getQueueId());
        shown.put("queue_offset", message.getQueueOffset());
        shown.put("reconsume_times", message.getReconsumeTimes());
        shown.put("born_ms", message.getBornTimestamp());
        shown.put("stored_ms", message.getStoreTimestamp());
        shown.put("received_ms", System.currentTimeMillis());
        shown.put("born_host", host(message.getBornHost()));
        shown.put("store_host", host(message.getStoreHost()));
        return shown;
    }

    private static String host(SocketAddress address) {
        return ((InetSocketAddress) address).getAddress().getHostAddress();
    }

    static String text(byte[] body) {
        if (body.length <= SHOWN_BYTES_MAX) {
            return new String(body, StandardCharsets.UTF_8);
        }
        return "sha256:" + digest(body);
    }

    private static String digest(byte[] body) {
        try {
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(body));
        } catch (NoSuchAlgorithmException impossible) {
            throw new IllegalStateException(impossible);
        }
    }
}
