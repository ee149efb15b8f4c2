package org.orbitmq.interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.client.consumer.store.OffsetSerializeWrapper;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/** Consumers without a broker: who takes which queue, and the offset file of broadcasting. */
final class Allocating {
    private Allocating() {
    }

    static void register(Map<String, Scenario> scenarios) {
        scenarios.put("allocate", Allocating::allocate);
        scenarios.put("offset_file", Allocating::offsetFile);
    }

    /**
     * Sorts queues and clients of each case as a consumer does, then lets the strategy choose for
     * each client. A queue is a list of topic, broker name and number.
     */
    private static Object allocate(JSONObject args) {
        List<Object> chosen = new ArrayList<>();
        JSONArray cases = args.getJSONArray("cases");
        for (int at = 0; at < cases.size(); at++) {
            chosen.add(chosen(cases.getJSONObject(at)));
        }
        return Map.of("chosen", chosen);
    }

    private static Object chosen(JSONObject request) {
        List<MessageQueue> queues = new ArrayList<>();
        JSONArray listed = request.getJSONArray("queues");
        for (int at = 0; at < listed.size(); at++) {
            JSONArray queue = listed.getJSONArray(at);
            queues.add(new MessageQueue(queue.getString(0), queue.getString(1), queue.getIntValue(2)));
        }
        List<String> clients = new ArrayList<>(request.getJSONArray("clients").toJavaList(String.class));
        Collections.sort(queues);
        Collections.sort(clients);
        AllocateMessageQueueStrategy strategy = strategy(request);
        Map<String, Object> byClient = new TreeMap<>();
        for (String client : clients) {
            List<Object> own = new ArrayList<>();
            for (MessageQueue queue : strategy.allocate("group", client, queues, clients)) {
                own.add(List.of(queue.getTopic(), queue.getBrokerName(), queue.getQueueId()));
            }
            byClient.put(client, own);
        }
        return byClient;
    }

    private static AllocateMessageQueueStrategy strategy(JSONObject request) {
        switch (request.getString("strategy")) {
            case "averagely":
                return new AllocateMessageQueueAveragely();
            case "averagely_by_circle":
                return new AllocateMessageQueueAveragelyByCircle();
            case "consistent_hash":
                return new AllocateMessageQueueConsistentHash(request.getIntValue("virtual_nodes"));
            case "by_machine_room":
                AllocateMessageQueueByMachineRoom byRoom = new AllocateMessageQueueByMachineRoom();
                byRoom.setConsumeridcs(new HashSet<>(request.getJSONArray("rooms").toJavaList(String.class)));
                return byRoom;
            case "machine_room_nearby":
                return new AllocateMachineRoomNearby(new AllocateMessageQueueAveragely(), new FirstPart());
            default:
                throw new IllegalArgumentException("no strategy " + request.getString("strategy"));
        }
    }

    /** The machine room is what stands before the first @ of a broker name or client id. */
    private static final class FirstPart implements AllocateMachineRoomNearby.MachineRoomResolver {
        @Override
        public String brokerDeployIn(MessageQueue queue) {
            return queue.getBrokerName().split("@")[0];
        }

        @Override
        public String consumerDeployIn(String clientId) {
            return clientId.split("@")[0];
        }
    }

    /** Reads the text of an offset file, and writes what it read as a consumer does. */
    private static Object offsetFile(JSONObject args) {
        OffsetSerializeWrapper read =
            RemotingSerializable.fromJson(args.getString("text"), OffsetSerializeWrapper.class);
        List<Object> offsets = new ArrayList<>();
        for (Map.Entry<MessageQueue, AtomicLong> entry : read.getOffsetTable().entrySet()) {
            MessageQueue queue = entry.getKey();
            offsets.add(
                List.of(queue.getTopic(), queue.getBrokerName(), queue.getQueueId(), entry.getValue().get()));
        }
        return Map.of("offsets", offsets, "text", read.toJson(true));
    }
}
