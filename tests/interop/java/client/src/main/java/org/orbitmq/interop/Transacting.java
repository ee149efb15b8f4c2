package org.orbitmq.interop;

import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Transactions: {@code open_transactions} starts a producer, {@code transact} sends with it.
 *
 * <p>Each message says itself how its transaction ends; the producer commits whatever a broker asks
 * it about later.
 */
final class Transacting {
    private static final int ANNOUNCE_INTERVAL_MS = 1_000;

    private Transacting() {
    }

    static void register(Map<String, Scenario> scenarios) {
        scenarios.put("open_transactions", Transacting::open);
        scenarios.put("transact", Transacting::transact);
    }

    private static Object open(JSONObject args) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(args.getString("group"));
        producer.setNamesrvAddr(args.getString("namesrv"));
        producer.setInstanceName(UUID.randomUUID().toString());
        producer.setSendMsgTimeout(Producing.CALL_TIMEOUT_MS);
        producer.setMqClientApiTimeout(Producing.CALL_TIMEOUT_MS);
        // A broker asks only producers that it heard of, so it should hear of this one soon.
        producer.setHeartbeatBrokerInterval(ANNOUNCE_INTERVAL_MS);
        producer.setTransactionListener(new AsTold());
        producer.start();
        // A 5.x producer knows no broker before it sends.
        producer.send(new Message(args.getString("topic"), "hello".getBytes(StandardCharsets.UTF_8)));
        Producing.OPEN.put(args.getString("producer"), producer);
        return Map.of();
    }

    private static Object transact(JSONObject args) throws Exception {
        TransactionMQProducer producer =
            (TransactionMQProducer) Producing.OPEN.get(args.getString("producer"));
        List<String> ids = new ArrayList<>();
        for (Object each : args.getJSONArray("messages")) {
            JSONObject listed = (JSONObject) each;
            Message message = Producing.message(args.getString("topic"), listed);
            LocalTransactionState ending = LocalTransactionState.valueOf(listed.getString("ending"));
            ids.add(producer.sendMessageInTransaction(message, ending).getMsgId());
        }
        return Map.of("message_ids", ids);
    }

    private static final class AsTold implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object ending) {
            return (LocalTransactionState) ending;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }
    }
}
