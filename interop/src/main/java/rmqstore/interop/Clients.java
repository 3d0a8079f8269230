package rmqstore.interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.security.MessageDigest;
import java.util.*;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.*;

/** The real client's producers and consumers. */
final class Clients {
    static final String BROKER = "broker-a";
    private static final int SEND_TIMEOUT_MS = 20_000;
    private static final int AWAIT_MS = 20_000;
    private static final int PULL_BATCH = 32;

    private final String namesrv;
    private final Map<String, Consumer> consumers = new HashMap<>();
    private TransactionMQProducer producer;
    private Load load;

    Clients(String namesrv) {
        this.namesrv = namesrv;
    }

    void answer(JSONObject request, JSONObject end) throws Exception {
        switch (request.getString("op")) {
            case "send" -> {
                for (Object each : request.getJSONArray("messages")) {
                    send((JSONObject) each);
                }
            }
            case "load_start" -> {
                if (load != null) {
                    throw new IllegalStateException("a load runs already");
                }
                load = new Load(producer(), request);
                load.start();
            }
            case "load_rows" -> drain(load.sent);
            case "load_stop" -> {
                Load stopping = load;
                load = null;
                stopping.end();
                drain(stopping.sent);
                end.put("failed", stopping.failed.get());
            }
            case "consumer_start" -> consumers.put(request.getString("group"), new Consumer(namesrv, request));
            case "consumer_rows" -> drain(consumers.get(request.getString("group")).got);
            case "consumer_stop" -> {
                Consumer stopping = consumers.remove(request.getString("group"));
                stopping.consumer.shutdown();
                drain(stopping.got);
            }
            case "pull" -> pull(request.getString("topic"));
            case "filters_pull" -> Filters.pull(namesrv, request);
            default -> throw new IllegalArgumentException("unknown op: " + request.getString("op"));
        }
    }

    void shutdown() {
        if (load != null) {
            load.end();
            load = null;
        }
        consumers.values().forEach(each -> each.consumer.shutdown());
        consumers.clear();
        if (producer != null) {
            producer.shutdown();
            producer = null;
        }
    }

    private static void drain(Queue<Object[]> rows) {
        for (Object[] row = rows.poll(); row != null; row = rows.poll()) {
            StoreDriver.row(row);
        }
    }

    private static String sha1(byte[] bytes) {
        try {
            return Base64.getEncoder().encodeToString(
                MessageDigest.getInstance("SHA-1").digest(bytes == null ? new byte[0] : bytes));
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    // ---- sending

    /** What becomes of a transaction is in a property of its message. */
    private static final class Outcomes implements TransactionListener {
        static final String NAME = "outcome";
        static final String AFTER_CHECK = "outcome-check";

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return LocalTransactionState.valueOf(message.getUserProperty(NAME));
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            String name = message.getUserProperty(AFTER_CHECK);
            return name == null ? LocalTransactionState.UNKNOW : LocalTransactionState.valueOf(name);
        }
    }

    private TransactionMQProducer producer() throws Exception {
        if (producer == null) {
            TransactionMQProducer starting = new TransactionMQProducer("interop-producer");
            starting.setNamesrvAddr(namesrv);
            starting.setClientIP("127.0.0.1");
            starting.setSendMsgTimeout(SEND_TIMEOUT_MS);
            starting.setRetryTimesWhenSendFailed(0); // what was stored twice could not be told from an error
            starting.setTransactionListener(new Outcomes());
            starting.start();
            producer = starting;
        }
        return producer;
    }

    private static Message message(String topic, JSONObject m) {
        Message message = new Message(topic, Base64.getDecoder().decode(m.getString("body")));
        message.setFlag(m.getIntValue("flag"));
        JSONArray pairs = m.getJSONArray("properties");
        for (Object pair : pairs == null ? List.of() : pairs) {
            message.putUserProperty(((JSONArray) pair).getString(0), ((JSONArray) pair).getString(1));
        }
        JSONArray keys = m.getJSONArray("keys");
        if (keys != null && !keys.isEmpty()) {
            message.setKeys(keys.toJavaList(String.class));
        }
        if (m.getString("tags") != null) {
            message.setTags(m.getString("tags"));
        }
        if (m.getIntValue("delay_level") != 0) {
            message.setDelayTimeLevel(m.getIntValue("delay_level"));
        }
        return message;
    }

    /** A row: status, queue id, queue offset, unique key(s), store message id(s), as the client has them. */
    private void send(JSONObject m) throws Exception {
        String topic = m.getString("topic");
        Integer queueId = m.getInteger("queue_id");
        MessageQueue queue = queueId == null ? null : new MessageQueue(topic, BROKER, queueId);
        SendResult sent;
        if (m.containsKey("messages")) {
            List<Message> batch = new ArrayList<>();
            for (Object each : m.getJSONArray("messages")) {
                batch.add(message(topic, (JSONObject) each));
            }
            sent = queue == null ? producer().send(batch) : producer().send(batch, queue);
        } else {
            Message message = message(topic, m);
            if (message.getUserProperty(Outcomes.NAME) != null) {
                sent = producer().sendMessageInTransaction(message, null);
            } else {
                sent = queue == null ? producer().send(message) : producer().send(message, queue);
            }
        }
        StoreDriver.row(sent.getSendStatus().name(), sent.getMessageQueue().getQueueId(),
            sent.getQueueOffset(), sent.getMsgId(), sent.getOffsetMsgId());
    }

    /** Sends random messages at a steady rate until it is ended. */
    private static final class Load extends Thread {
        final Queue<Object[]> sent = new ConcurrentLinkedQueue<>();
        final AtomicReference<String> failed = new AtomicReference<>();
        private final MQProducer producer;
        private final JSONObject request;
        private volatile boolean stop;

        Load(MQProducer producer, JSONObject request) {
            super("load");
            setDaemon(true);
            this.producer = producer;
            this.request = request;
        }

        @Override
        public void run() {
            Random random = new Random(request.getLongValue("seed"));
            List<String> topics = request.getJSONArray("topics").toJavaList(String.class);
            long interval = TimeUnit.SECONDS.toNanos(1) / request.getIntValue("rate");
            try {
                long next = System.nanoTime();
                for (long n = 0; !stop; n++) {
                    one(topics.get(random.nextInt(topics.size())), random, n);
                    next = Math.max(next + interval, System.nanoTime() - TimeUnit.SECONDS.toNanos(1));
                    long left = next - System.nanoTime();
                    if (left > 0) {
                        TimeUnit.NANOSECONDS.sleep(left);
                    }
                }
            } catch (Exception e) {
                failed.set(e.toString());
            }
        }

        private void one(String topic, Random random, long n) throws Exception {
            byte[] body = new byte[1 + random.nextInt(request.getIntValue("max_body"))];
            random.nextBytes(body);
            Message message = new Message(topic, body);
            message.setKeys(List.of("load-" + n, "some-" + random.nextInt(100)));
            message.setTags(random.nextBoolean() ? "even" : "odd");
            MessageQueue queue = new MessageQueue(topic, BROKER, random.nextInt(request.getIntValue("queues")));
            SendResult done = producer.send(message, queue);
            sent.add(new Object[] {topic, queue.getQueueId(), done.getQueueOffset(), done.getOffsetMsgId(),
                done.getMsgId(), sha1(body), done.getSendStatus().name()});
        }

        void end() {
            stop = true;
            try {
                join(SEND_TIMEOUT_MS);
            } catch (InterruptedException e) {
                currentThread().interrupt();
            }
        }
    }

    // ---- consuming

    private static Object[] got(MessageExt m) {
        return new Object[] {m.getTopic(), m.getQueueId(), m.getQueueOffset(), m.getCommitLogOffset(), m.getMsgId(),
            sha1(m.getBody()), m.getReconsumeTimes(), new TreeMap<>(m.getProperties())};
    }

    /** A push consumer that notes what it gets, and fails what has the property named by {@code fail}. */
    private static final class Consumer {
        final Queue<Object[]> got = new ConcurrentLinkedQueue<>();
        final DefaultMQPushConsumer consumer;

        Consumer(String namesrv, JSONObject request) throws Exception {
            String fail = request.getString("fail");
            consumer = new DefaultMQPushConsumer(request.getString("group"));
            consumer.setNamesrvAddr(namesrv);
            consumer.setClientIP("127.0.0.1");
            consumer.setInstanceName(request.getString("group"));
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.setMaxReconsumeTimes(1);
            // A message that was taken is committed by the end, however slow its thread is.
            consumer.setAwaitTerminationMillisWhenShutdown(AWAIT_MS);
            for (Map.Entry<String, Object> topic : request.getJSONObject("tags").entrySet()) {
                consumer.subscribe(topic.getKey(), (String) topic.getValue());
            }
            for (Map.Entry<String, Object> topic : request.getJSONObject("sql").entrySet()) {
                consumer.subscribe(topic.getKey(), MessageSelector.bySql((String) topic.getValue()));
            }
            consumer.registerMessageListener((List<MessageExt> messages, ConsumeConcurrentlyContext context) -> {
                messages.forEach(m -> got.add(got(m)));
                context.setDelayLevelWhenNextConsume(1);
                return fail != null && messages.get(0).getProperty(fail) != null
                    ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
        }
    }

    /** Rows: everything in the topic, queue by queue, by a pull consumer. */
    private void pull(String topic) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("interop-pull");
        consumer.setNamesrvAddr(namesrv);
        consumer.setClientIP("127.0.0.1");
        consumer.start();
        try {
            for (MessageQueue queue : new TreeSet<>(consumer.fetchSubscribeMessageQueues(topic))) {
                long offset = consumer.minOffset(queue);
                long max = consumer.maxOffset(queue);
                while (offset < max) {
                    PullResult pulled = consumer.pull(queue, "*", offset, PULL_BATCH);
                    if (pulled.getPullStatus() == PullStatus.FOUND) {
                        pulled.getMsgFoundList().forEach(m -> StoreDriver.row(got(m)));
                    }
                    if (pulled.getNextBeginOffset() <= offset) {
                        throw new IllegalStateException(queue + " ends at " + offset + ": " + pulled);
                    }
                    offset = pulled.getNextBeginOffset();
                }
            }
        } finally {
            consumer.shutdown();
        }
    }
}
