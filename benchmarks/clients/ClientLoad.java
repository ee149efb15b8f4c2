import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.RequestTimeoutException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * RocketMQ's Java client under the orders of a benchmark: one order a line on standard input, one
 * line of figures back: messages, seconds, seconds of processor time of this process; or an error;
 * then one that says that everything is closed.
 *
 * <p>{@code send one|concurrent|batch|oneway <topic> <body bytes> <at once> <seconds>}
 *
 * <p>{@code request <topic> <group> <at once> <seconds>}
 *
 * <p>{@code transact <topic> <at once> <seconds>}
 *
 * <p>{@code consume <topic> <group> <warm-up messages> <messages> <seconds at most>}
 */
public final class ClientLoad {
    /** A loaded machine must not end the run. */
    private static final int CALL_TIMEOUT_MS = 15_000;
    /** Of one slice: with 65,535 waiting to be written, this client stops for seconds and drops some. */
    private static final int ONEWAY_MAX = 30_000;
    /** Of requests, replies and transactions. */
    private static final int BODY_BYTES = 128;
    private static final int FIRST_REQUEST_MS = 1_000;
    private static final int FIRST_REQUESTS_MAX = 30;
    private static final int QUEUES = 8;
    private static final OperatingSystemMXBean SYSTEM =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private ClientLoad() {
    }

    public static void main(String[] arguments) throws Exception {
        String nameServer = arguments[0];
        DefaultMQProducer producer = new DefaultMQProducer("benchmark");
        producer.setNamesrvAddr(nameServer);
        producer.setInstanceName(UUID.randomUUID().toString());
        producer.setSendMsgTimeout(CALL_TIMEOUT_MS);
        producer.setMqClientApiTimeout(CALL_TIMEOUT_MS);
        producer.start();
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            String[] words = order.split(" ");
            try {
                if ("send".equals(words[0])) {
                    send(producer, words);
                } else if ("request".equals(words[0])) {
                    request(producer, nameServer, words);
                } else if ("transact".equals(words[0])) {
                    transact(nameServer, words);
                } else {
                    consume(nameServer, words);
                }
            } catch (Exception failure) {
                System.out.println("error " + failure);
            }
            System.out.println("closed");
        }
        producer.shutdown();
        System.exit(0);
    }

    private static void send(DefaultMQProducer producer, String[] words) throws Exception {
        String mode = words[1];
        String topic = words[2];
        byte[] body = "x".repeat(Integer.parseInt(words[3])).getBytes(StandardCharsets.UTF_8);
        int atOnce = Integer.parseInt(words[4]);
        // Routes and connections are there before the clock starts.
        producer.send(new Message(topic, "tag", body));
        long startNs = System.nanoTime();
        long startCpuNs = SYSTEM.getProcessCpuTime();
        long endNs = startNs + (long) (Double.parseDouble(words[5]) * 1e9);
        AtomicLong sent = new AtomicLong();
        int threads = "concurrent".equals(mode) ? atOnce : 1;
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        List<Future<?>> running = new ArrayList<>();
        for (int number = 0; number < threads; number++) {
            running.add(pool.submit(() -> {
                long most = "oneway".equals(mode) ? ONEWAY_MAX : Long.MAX_VALUE;
                while (System.nanoTime() < endNs && sent.get() < most) {
                    sent.addAndGet(sendOnce(producer, mode, topic, body, atOnce));
                }
                return null;
            }));
        }
        for (Future<?> one : running) {
            one.get();
        }
        tell(sent.get(), startNs, startCpuNs);
        pool.shutdown();
    }

    private static int sendOnce(
        DefaultMQProducer producer, String mode, String topic, byte[] body, int atOnce
    ) throws Exception {
        if ("batch".equals(mode)) {
            List<Message> batch = new ArrayList<>(atOnce);
            for (int number = 0; number < atOnce; number++) {
                batch.add(new Message(topic, "tag", body));
            }
            producer.send(batch);
            return atOnce;
        }
        if ("oneway".equals(mode)) {
            producer.sendOneway(new Message(topic, "tag", body));
        } else {
            producer.send(new Message(topic, "tag", body));
        }
        return 1;
    }

    private static void consume(String nameServer, String[] words) throws Exception {
        long warmUp = Long.parseLong(words[3]);
        long last = warmUp + Long.parseLong(words[4]);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(words[2]);
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName(UUID.randomUUID().toString());
        consumer.setMqClientApiTimeout(CALL_TIMEOUT_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(words[1], "*");
        AtomicLong received = new AtomicLong();
        long[] start = new long[2];
        CountDownLatch done = new CountDownLatch(1);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (int index = 0; index < messages.size(); index++) {
                long number = received.incrementAndGet();
                if (number == warmUp) {
                    start[0] = System.nanoTime();
                    start[1] = SYSTEM.getProcessCpuTime();
                } else if (number == last) {
                    tell(last - warmUp, start[0], start[1]);
                    done.countDown();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        if (!done.await((long) (Double.parseDouble(words[5]) * 1000), TimeUnit.MILLISECONDS)) {
            System.out.println("error only " + received.get() + " messages came");
        }
        consumer.shutdown();
    }

    private static void request(DefaultMQProducer producer, String nameServer, String[] words)
        throws Exception {
        String topic = words[1];
        int atOnce = Integer.parseInt(words[3]);
        byte[] body = "x".repeat(BODY_BYTES).getBytes(StandardCharsets.UTF_8);
        DefaultMQPushConsumer replier = new DefaultMQPushConsumer(words[2]);
        replier.setNamesrvAddr(nameServer);
        replier.setInstanceName(UUID.randomUUID().toString());
        replier.setMqClientApiTimeout(CALL_TIMEOUT_MS);
        replier.subscribe(topic, "*");
        replier.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    producer.send(MessageUtil.createReplyMessage(message, message.getBody()));
                } catch (Exception failure) {
                    System.err.println("not replied: " + failure);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        replier.start();
        ExecutorService pool = Executors.newFixedThreadPool(atOnce);
        try {
            // Until the replier has all queues.
            for (int tries = 0; tries < FIRST_REQUESTS_MAX; tries++) {
                try {
                    for (int queue = 0; queue < QUEUES; queue++) {
                        producer.request(new Message(topic, body), FIRST_REQUEST_MS);
                    }
                    break;
                } catch (RequestTimeoutException early) {
                    continue;
                }
            }
            long startNs = System.nanoTime();
            long startCpuNs = SYSTEM.getProcessCpuTime();
            long endNs = startNs + (long) (Double.parseDouble(words[4]) * 1e9);
            AtomicLong asked = new AtomicLong();
            List<Future<?>> running = new ArrayList<>();
            for (int number = 0; number < atOnce; number++) {
                running.add(pool.submit(() -> {
                    do {
                        producer.request(new Message(topic, body), CALL_TIMEOUT_MS);
                        asked.incrementAndGet();
                    } while (System.nanoTime() < endNs);
                    return null;
                }));
            }
            for (Future<?> one : running) {
                one.get();
            }
            tell(asked.get(), startNs, startCpuNs);
        } finally {
            pool.shutdown();
            replier.shutdown();
        }
    }

    private static void transact(String nameServer, String[] words) throws Exception {
        int atOnce = Integer.parseInt(words[2]);
        byte[] body = "x".repeat(BODY_BYTES).getBytes(StandardCharsets.UTF_8);
        TransactionMQProducer producer = new TransactionMQProducer("benchmark_transactions");
        producer.setNamesrvAddr(nameServer);
        producer.setInstanceName(UUID.randomUUID().toString());
        producer.setSendMsgTimeout(CALL_TIMEOUT_MS);
        producer.setMqClientApiTimeout(CALL_TIMEOUT_MS);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        ExecutorService pool = Executors.newFixedThreadPool(atOnce);
        try {
            long startNs = System.nanoTime();
            long startCpuNs = SYSTEM.getProcessCpuTime();
            long endNs = startNs + (long) (Double.parseDouble(words[3]) * 1e9);
            AtomicLong committed = new AtomicLong();
            List<Future<?>> running = new ArrayList<>();
            for (int number = 0; number < atOnce; number++) {
                running.add(pool.submit(() -> {
                    do {
                        producer.sendMessageInTransaction(new Message(words[1], "tag", body), null);
                        committed.incrementAndGet();
                    } while (System.nanoTime() < endNs);
                    return null;
                }));
            }
            for (Future<?> one : running) {
                one.get();
            }
            tell(committed.get(), startNs, startCpuNs);
        } finally {
            pool.shutdown();
            producer.shutdown();
        }
    }

    private static void tell(long messages, long startNs, long startCpuNs) {
        double cpu = (SYSTEM.getProcessCpuTime() - startCpuNs) / 1e9;
        double seconds = (System.nanoTime() - startNs) / 1e9;
        System.out.println("figures " + messages + " " + seconds + " " + cpu);
    }
}
