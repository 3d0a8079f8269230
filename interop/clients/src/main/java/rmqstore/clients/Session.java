package rmqstore.clients;

import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;

/** Clients of one scenario, what they say, and their end. */
final class Session implements AutoCloseable {
    private static final int LONG_BODY = 200;
    private static final long LONGEST_WAIT = 60; // seconds, on a machine that does much else

    final String namesrv;
    final JSONObject request;
    private final List<Runnable> ends = new ArrayList<>();
    private RPCHook signing; // null: clients sign nothing

    Session(JSONObject request) {
        this.request = request;
        namesrv = request.getString("namesrv");
    }

    /** Ends the clients, the last made first. */
    @Override
    public void close() {
        for (int i = ends.size() - 1; i >= 0; i--) {
            ends.get(i).run();
        }
        ends.clear();
    }

    void atEnd(Runnable end) {
        ends.add(end);
    }

    /** Lets the clients that are made from now on sign what they ask for. */
    void sign(SessionCredentials account) {
        signing = new AclClientRPCHook(account);
    }

    // ---- clients

    <T extends ClientConfig> T configured(T client, String instance) {
        client.setNamesrvAddr(namesrv);
        client.setClientIP("127.0.0.1");
        client.setInstanceName(instance);
        return client;
    }

    DefaultMQProducer producer(String group) throws MQClientException {
        DefaultMQProducer producer = configured(new DefaultMQProducer(group, signing), group);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        atEnd(producer::shutdown);
        return producer;
    }

    /** A push consumer that is not started. */
    DefaultMQPushConsumer push(String group, String instance) {
        DefaultMQPushConsumer consumer = configured(
            new DefaultMQPushConsumer(group, signing, new AllocateMessageQueueAveragely()), instance);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(2);
        consumer.setConsumeThreadMax(2);
        return consumer;
    }

    void start(DefaultMQPushConsumer consumer) throws MQClientException {
        atEnd(consumer::shutdown); // one that could not start has threads as well
        consumer.start();
    }

    DefaultMQPullConsumer pull(String group) throws MQClientException {
        DefaultMQPullConsumer consumer = configured(new DefaultMQPullConsumer(group, signing), group);
        consumer.start();
        atEnd(consumer::shutdown);
        return consumer;
    }

    DefaultLitePullConsumer lite(String group) {
        DefaultLitePullConsumer consumer = configured(new DefaultLitePullConsumer(group, signing), group);
        consumer.setPullThreadNums(8);
        consumer.setAutoCommit(false);
        return consumer;
    }

    /** Returns when what a client does a second after its start is done: its first heartbeat. */
    static void settled(MQClientInstance client) throws Exception {
        // It does such things one after the other, in the order in which they are due.
        client.getScheduledExecutorService().schedule(() -> { }, 1000, TimeUnit.MILLISECONDS).get();
    }

    /** A listener that says what it gets and accepts it. */
    MessageListenerConcurrently listener(String who, List<MessageExt> got) {
        return (messages, context) -> {
            messages.forEach(message -> got(who, message));
            got.addAll(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        };
    }

    // ---- rows

    void say(String kind, Object... values) {
        Main.row(kind, values);
    }

    void sent(String who, SendResult result) {
        Map<String, Object> row = new TreeMap<>();
        row.put("status", result.getSendStatus().name());
        row.put("topic", result.getMessageQueue().getTopic());
        row.put("broker", result.getMessageQueue().getBrokerName());
        row.put("queue_id", result.getMessageQueue().getQueueId());
        row.put("queue_offset", result.getQueueOffset());
        row.put("msg_id", result.getMsgId());
        row.put("offset_msg_id", result.getOffsetMsgId());
        row.put("transaction_id", result.getTransactionId());
        row.put("region", result.getRegionId());
        row.put("trace_on", result.isTraceOn());
        Main.row("sent", who, row);
    }

    void got(String who, MessageExt message) {
        Map<String, Object> row = new TreeMap<>();
        row.put("topic", message.getTopic());
        row.put("queue_id", message.getQueueId());
        row.put("queue_offset", message.getQueueOffset());
        row.put("body", text(message.getBody()));
        row.put("tags", message.getTags());
        row.put("keys", message.getKeys());
        row.put("flag", message.getFlag());
        row.put("sys_flag", message.getSysFlag());
        row.put("reconsume_times", message.getReconsumeTimes());
        row.put("broker", message.getBrokerName());
        row.put("msg_id", message.getMsgId());
        row.put("transaction_id", message.getTransactionId());
        row.put("properties", new TreeMap<>(message.getProperties()));
        Main.row("got", who, row);
    }

    /** Says what a call threw; that it throws nothing is said as well. */
    void refused(String what, Callable<?> call) {
        try {
            Main.row("error", what, "none", 0, String.valueOf(call.call()));
        } catch (MQBrokerException e) {
            Main.row("error", what, "broker", e.getResponseCode(), e.getErrorMessage());
        } catch (MQClientException e) {
            Main.row("error", what, "client", e.getResponseCode(), e.getErrorMessage());
        } catch (Exception e) {
            Main.row("error", what, e.getClass().getSimpleName(), 0, e.getMessage());
        }
    }

    // ---- small things

    static Message message(String topic, String tag, String key, String body) {
        return new Message(topic, tag, key, body.getBytes(StandardCharsets.UTF_8));
    }

    static String text(byte[] body) {
        return body.length <= LONG_BODY ? new String(body, StandardCharsets.UTF_8) : sha1(body);
    }

    static String sha1(byte[] bytes) {
        try {
            return Base64.getEncoder().encodeToString(MessageDigest.getInstance("SHA-1").digest(bytes));
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    static void sleep(long milliseconds) throws InterruptedException {
        TimeUnit.MILLISECONDS.sleep(milliseconds);
    }

    /** Waits until so much is there, and a moment more for what must not come. */
    static void wait(List<?> got, int count) throws InterruptedException {
        until(() -> got.size() >= count);
        sleep(300);
    }

    static void until(Callable<Boolean> condition) throws InterruptedException {
        until(condition, LONGEST_WAIT);
    }

    static void until(Callable<Boolean> condition, long seconds) throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        try {
            while (!condition.call() && System.nanoTime() < deadline) {
                sleep(20);
            }
        } catch (InterruptedException e) {
            throw e;
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }
}
