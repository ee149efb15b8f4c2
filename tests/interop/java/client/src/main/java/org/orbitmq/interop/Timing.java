package org.orbitmq.interop;

import com.alibaba.fastjson.JSONObject;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** Due times, which only the clients of 5.x have: found by name, so that 4.9 compiles. */
final class Timing {
    private Timing() {
    }

    static void set(Message message, JSONObject wish) {
        try {
            if (wish.containsKey("deliver_ms")) {
                Message.class
                    .getMethod("setDeliverTimeMs", long.class)
                    .invoke(message, wish.getLongValue("deliver_ms"));
            }
            if (wish.containsKey("delay_ms")) {
                Message.class
                    .getMethod("setDelayTimeMs", long.class)
                    .invoke(message, wish.getLongValue("delay_ms"));
            }
        } catch (ReflectiveOperationException failure) {
            throw new IllegalStateException(failure);
        }
    }

    /** The handle of a receipt; empty if there is none. */
    static String recallHandle(SendResult result) {
        try {
            Object handle = SendResult.class.getMethod("getRecallHandle").invoke(result);
            return handle == null ? "" : (String) handle;
        } catch (ReflectiveOperationException failure) {
            return "";
        }
    }

    static Object recall(DefaultMQProducer producer, JSONObject args) throws Exception {
        Object id =
            DefaultMQProducer.class
                .getMethod("recallMessage", String.class, String.class)
                .invoke(producer, args.getString("topic"), args.getString("handle"));
        return Map.of("message_id", id);
    }
}
