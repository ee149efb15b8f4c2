package org.orbitmq.interop;

import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.message.Message;

/**
 * Sending: {@code produce} with a producer of its own, or {@code open_producer}, {@code send} any
 * number of times and {@code close_producer} with one that lives on between requests.
 *
 * <p>{@code produce_listed} sends the very messages it is given, one by one or as one batch.
 */
final class Producing {
    /** Of a call, far above what a client allows itself: a young JVM on a loaded machine is slow. */
    static final int CALL_TIMEOUT_MS = 60_000;
    static final Map<String, DefaultMQProducer> OPEN = new ConcurrentHashMap<>();

    private Producing() {
    }

    static void register(Map<String, Scenario> scenarios) {
        scenarios.put("produce", Producing::produce);
        scenarios.put("produce_listed", Producing::produceListed);
        scenarios.put("open_producer", Producing::open);
        scenarios.put("send", args -> send(OPEN.get(args.getString("producer")), args));
        scenarios.put("post", args -> Posting.post(OPEN.get(args.getString("producer")), args));
        scenarios.put("recall", args -> Timing.recall(OPEN.get(args.getString("producer")), args));
        scenarios.put("close_producer", Producing::close);
    }

    private static Object produce(JSONObject args) throws Exception {
        DefaultMQProducer producer = started(args);
        try {
            return send(producer, args);
        } finally {
            producer.shutdown();
        }
    }

    private static Object produceListed(JSONObject args) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (Object listed : args.getJSONArray("messages")) {
            messages.add(message(args.getString("topic"), (JSONObject) listed));
        }
        DefaultMQProducer producer = compressing(args);
        try {
            List<String> ids = new ArrayList<>();
            List<String> offsetIds = new ArrayList<>();
            if (args.getBooleanValue("batch")) {
                note(producer.send(messages), ids, offsetIds);
            } else {
                for (Message message : messages) {
                    note(producer.send(message), ids, offsetIds);
                }
            }
            return Map.of("message_ids", ids, "offset_ids", offsetIds);
        } finally {
            producer.shutdown();
        }
    }

    /** A batch has its ids in one text. */
    private static void note(SendResult sent, List<String> ids, List<String> offsetIds) {
        ids.addAll(List.of(sent.getMsgId().split(",")));
        offsetIds.addAll(List.of(sent.getOffsetMsgId().split(",")));
    }

    /** Starts a producer that compresses as told; it reads this property when it is made. */
    private static synchronized DefaultMQProducer compressing(JSONObject args) throws Exception {
        System.setProperty(MixAll.MESSAGE_COMPRESS_TYPE, args.getString("compression"));
        try {
            return started(args);
        } finally {
            System.clearProperty(MixAll.MESSAGE_COMPRESS_TYPE);
        }
    }

    /** The message that a test wrote down. */
    static Message message(String topic, JSONObject listed) {
        byte[] body = listed.getString("body").getBytes(StandardCharsets.UTF_8);
        Message message = new Message(topic, listed.getString("tags"), listed.getString("keys"), body);
        message.setFlag(listed.getIntValue("flag"));
        if (listed.getIntValue("delay_level") > 0) {
            message.setDelayTimeLevel(listed.getIntValue("delay_level"));
        }
        JSONObject properties = listed.getJSONObject("properties");
        for (String name : properties.keySet()) {
            message.putUserProperty(name, properties.getString(name));
        }
        return message;
    }

    private static Object open(JSONObject args) throws Exception {
        OPEN.put(args.getString("producer"), started(args));
        return Map.of();
    }

    private static Object close(JSONObject args) {
        OPEN.remove(args.getString("producer")).shutdown();
        return Map.of();
    }

    private static DefaultMQProducer started(JSONObject args) throws Exception {
        String traceTopic = args.getString("trace_topic");
        DefaultMQProducer producer =
            new DefaultMQProducer(args.getString("group"), traceTopic != null, traceTopic);
        producer.setNamesrvAddr(args.getString("namesrv"));
        producer.setInstanceName(UUID.randomUUID().toString());
        producer.setSendMsgTimeout(CALL_TIMEOUT_MS);
        producer.setMqClientApiTimeout(CALL_TIMEOUT_MS);
        if (args.containsKey("route_poll_ms")) {
            producer.setPollNameServerInterval(args.getIntValue("route_poll_ms"));
        }
        if (args.containsKey("compress_above_bytes")) {
            producer.setCompressMsgBodyOverHowmuch(args.getIntValue("compress_above_bytes"));
        }
        if (args.containsKey("body_bytes_max")) {
            producer.setMaxMessageSize(args.getIntValue("body_bytes_max"));
        }
        if (args.containsKey("template_topic")) {
            producer.setCreateTopicKey(args.getString("template_topic"));
        }
        if (args.containsKey("retries")) {
            producer.setRetryTimesWhenSendFailed(args.getIntValue("retries"));
        }
        producer.start();
        return producer;
    }

    private static Object send(DefaultMQProducer producer, JSONObject args) throws Exception {
        List<String> ids = new ArrayList<>();
        List<Integer> queues = new ArrayList<>();
        List<String> statuses = new ArrayList<>();
        for (int number = 0; number < args.getIntValue("count"); number++) {
            SendResult sent = producer.send(message(args, number));
            ids.add(sent.getMsgId());
            queues.add(sent.getMessageQueue().getQueueId());
            statuses.add(sent.getSendStatus().name());
        }
        return Map.of("message_ids", ids, "queue_ids", queues, "statuses", statuses);
    }

    private static Message message(JSONObject args, int number) {
        StringBuilder body = new StringBuilder("message " + number);
        while (body.length() < args.getIntValue("body_bytes")) {
            body.append('.');
        }
        String keys = args.getString("keys");
        return new Message(
            args.getString("topic"),
            args.getString("tags"),
            keys == null ? null : keys + number,
            body.toString().getBytes(StandardCharsets.UTF_8));
    }
}
