import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.UUID;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * RocketMQ's Java client as a member of an ordered group, under the orders of a benchmark: says
 * {@code ready}, then takes {@code join} and {@code leave}, a line each, and prints
 * {@code got <queue> <time in ms>} for each message, and {@code left} in the end.
 *
 * <p>Arguments: name server, topic, group.
 */
public final class OrderedMember {
    private OrderedMember() {
    }

    public static void main(String[] arguments) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(arguments[2]);
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setInstanceName(UUID.randomUUID().toString());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(arguments[1], "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            for (MessageExt message : messages) {
                tell("got " + message.getQueueId() + " " + System.currentTimeMillis());
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        tell("ready");
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            if ("join".equals(order)) {
                consumer.start();
            } else {
                consumer.shutdown();
                tell("left");
                System.exit(0);
            }
        }
    }

    private static void tell(String line) {
        synchronized (System.out) {
            System.out.println(line);
            System.out.flush();
        }
    }
}
