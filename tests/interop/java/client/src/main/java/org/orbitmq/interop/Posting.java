package org.orbitmq.interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Sending in every way: {@code post} takes messages described one by one and a mode.
 *
 * <p>The answer has an outcome for each message: what the producer was told, or the error.
 */
final class Posting {
    private Posting() {
    }

    static Object post(DefaultMQProducer producer, JSONObject args) throws Exception {
        List<Message> messages = new ArrayList<>();
        JSONArray described = args.getJSONArray("messages");
        for (int at = 0; at < described.size(); at++) {
            messages.add(message(described.getJSONObject(at)));
        }
        String mode = args.getString("mode");
        List<JSONObject> outcomes = new ArrayList<>();
        if ("batch".equals(mode)) {
            outcomes.add(outcome(() -> producer.send(messages, Producing.CALL_TIMEOUT_MS)));
            return Map.of("outcomes", outcomes);
        }
        List<CompletableFuture<SendResult>> pending = new ArrayList<>();
        for (int at = 0; at < messages.size(); at++) {
            Message message = messages.get(at);
            JSONObject wish = described.getJSONObject(at);
            switch (mode) {
                case "sync":
                    outcomes.add(outcome(() -> send(producer, message, wish)));
                    break;
                case "async":
                    pending.add(sendAsync(producer, message));
                    break;
                case "oneway":
                    producer.sendOneway(message);
                    break;
                default:
                    throw new IllegalArgumentException("no mode " + mode);
            }
        }
        for (CompletableFuture<SendResult> sent : pending) {
            outcomes.add(outcome(() -> sent.get(Producing.CALL_TIMEOUT_MS, TimeUnit.MILLISECONDS)));
        }
        return Map.of("outcomes", outcomes);
    }

    private static SendResult send(DefaultMQProducer producer, Message message, JSONObject wish)
        throws Exception {
        if (wish.containsKey("shard")) {
            return producer.send(
                message, new SelectMessageQueueByHash(), wish.getString("shard"), Producing.CALL_TIMEOUT_MS);
        }
        if (wish.containsKey("queue_id")) {
            MessageQueue queue =
                new MessageQueue(
                    message.getTopic(), wish.getString("broker"), wish.getIntValue("queue_id"));
            return producer.send(message, queue, Producing.CALL_TIMEOUT_MS);
        }
        return producer.send(message, Producing.CALL_TIMEOUT_MS);
    }

    private static CompletableFuture<SendResult> sendAsync(
        DefaultMQProducer producer, Message message) throws Exception {
        CompletableFuture<SendResult> sent = new CompletableFuture<>();
        producer.send(
            message,
            new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    sent.complete(result);
                }

                @Override
                public void onException(Throwable failure) {
                    sent.completeExceptionally(failure);
                }
            },
            Producing.CALL_TIMEOUT_MS);
        return sent;
    }

    private static JSONObject outcome(Sending sending) {
        JSONObject outcome = new JSONObject();
        try {
            SendResult result = sending.send();
            outcome.put("status", result.getSendStatus().name());
            outcome.put("message_id", result.getMsgId());
            outcome.put("offset_message_id", result.getOffsetMsgId());
            outcome.put("broker", result.getMessageQueue().getBrokerName());
            outcome.put("queue_id", result.getMessageQueue().getQueueId());
            outcome.put("queue_offset", result.getQueueOffset());
            outcome.put("recall_handle", Timing.recallHandle(result));
        } catch (Exception failure) {
            outcome.put("error", failure.toString());
        }
        return outcome;
    }

    private static Message message(JSONObject wish) {
        Message message = new Message(wish.getString("topic"), body(wish));
        if (wish.containsKey("tags")) {
            message.setTags(wish.getString("tags"));
        }
        if (wish.containsKey("keys")) {
            message.setKeys(wish.getString("keys"));
        }
        if (wish.containsKey("delay_level")) {
            message.setDelayTimeLevel(wish.getIntValue("delay_level"));
        }
        Timing.set(message, wish);
        message.setFlag(wish.getIntValue("flag"));
        JSONObject properties = wish.getJSONObject("properties");
        if (properties != null) {
            properties.forEach((name, value) -> message.putUserProperty(name, (String) value));
        }
        return message;
    }

    /**
     * The bytes given, or the text given, filled up to a size: with dots, or with noise that does
     * not compress.
     */
    private static byte[] body(JSONObject wish) {
        if (wish.containsKey("body_hex")) {
            return HexFormat.of().parseHex(wish.getString("body_hex"));
        }
        byte[] text = wish.getString("body").getBytes(StandardCharsets.UTF_8);
        int bytes = Math.max(text.length, wish.getIntValue("body_bytes"));
        byte[] body = new byte[bytes];
        if (wish.getBooleanValue("noise")) {
            new Random(bytes).nextBytes(body);
        } else {
            Arrays.fill(body, (byte) '.');
        }
        System.arraycopy(text, 0, body, 0, text.length);
        return body;
    }

    /** One send that may fail. */
    @FunctionalInterface
    private interface Sending {
        SendResult send() throws Exception;
    }
}
