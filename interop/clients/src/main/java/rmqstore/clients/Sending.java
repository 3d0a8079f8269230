package rmqstore.clients;

import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.SerializeType;

/** Scenarios of producers. */
final class Sending {
    private static final String BROKER = "broker-a";

    private Sending() {
    }

    static void quickstart(Session session) throws Exception {
        DefaultMQProducer producer = session.producer("Producer");
        for (int i = 0; i < 3; i++) {
            Message message = new Message("Topic1", "TagA", "Hello RocketMQ".getBytes(StandardCharsets.UTF_8));
            message.putUserProperty("psly", "psly");
            session.sent("quickstart", producer.send(message, (queues, m, argument) ->
                queues.get((Integer) argument % queues.size()), 2));
        }
    }

    /** Messages of many shapes into the queues in turn. */
    static void put(Session session) throws Exception {
        DefaultMQProducer producer = session.producer("put-p");
        for (int i = 0; i < 12; i++) {
            Message message = Session.message("put", i % 2 == 0 ? "created" : "paid", "order-" + i, "order " + i);
            message.putUserProperty("amount", Integer.toString(100 * i));
            message.putUserProperty("text", "K\u00f6ln \u6771\u4eac \ud83d\ude80 \"quoted\" \\ /");
            message.setFlag(i);
            message.setWaitStoreMsgOK(i % 3 != 0);
            session.sent("put", producer.send(message, new MessageQueue("put", BROKER, i % 4)));
        }
        session.sent("untagged", producer.send(new Message("put", new byte[] {0}), new MessageQueue("put", BROKER, 0)));
    }

    static void async(Session session) throws Exception {
        DefaultMQProducer producer = session.producer("async-p");
        session.sent("async", producer.send(Session.message("async", "t", "k", "first"), new MessageQueue("async", BROKER, 0)));
        List<Object> ends = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch left = new CountDownLatch(0);
        for (int i = 0; i < 12; i++) {
            if (i % 4 == 0) { // one to a queue at a time, so that the offset of each is known
                left.await(10, TimeUnit.SECONDS);
                left = new CountDownLatch(4);
            }
            CountDownLatch mine = left;
            producer.send(Session.message("async", "t", "k" + i, "async " + i), new MessageQueue("async", BROKER, i % 4),
                new SendCallback() {
                    @Override
                    public void onSuccess(SendResult result) {
                        ends.add(result);
                        mine.countDown();
                    }

                    @Override
                    public void onException(Throwable e) {
                        ends.add(e);
                        mine.countDown();
                    }
                });
        }
        left.await(10, TimeUnit.SECONDS);
        for (Object each : ends) {
            if (each instanceof SendResult result) {
                session.sent("async", result);
            } else {
                session.say("failed", String.valueOf(each));
            }
        }
    }

    static void oneway(Session session) throws Exception {
        DefaultMQProducer producer = session.producer("oneway-p");
        session.sent("oneway", producer.send(Session.message("oneway", "t", "k", "first"),
            new MessageQueue("oneway", BROKER, 0)));
        for (int i = 0; i < 10; i++) {
            producer.sendOneway(Session.message("oneway", "t", "k" + i, "oneway " + i),
                new MessageQueue("oneway", BROKER, i % 4));
        }
        Session.until(() -> stored(producer, "oneway") >= 11);
        session.say("stored", stored(producer, "oneway"));
    }

    private static long stored(DefaultMQProducer producer, String topic) throws Exception {
        long stored = 0;
        for (int queue = 0; queue < 4; queue++) {
            stored += producer.maxOffset(new MessageQueue(topic, BROKER, queue));
        }
        return stored;
    }

    static void batch(Session session) throws Exception {
        DefaultMQProducer producer = session.producer("batch-p");
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < 5; i++) {
            messages.add(Session.message("batched", "b" + i, "batch-" + i, "batch body " + i));
        }
        MessageQueue queue = new MessageQueue("batched", BROKER, 2);
        session.sent("batch", producer.send(messages, queue));
        session.sent("single", producer.send(Session.message("batched", "b", "after", "after"), queue));
        List<MessageExt> got = Collections.synchronizedList(new ArrayList<>());
        DefaultMQPushConsumer consumer = session.push("batch-c", "batch-c");
        consumer.subscribe("batched", "*");
        consumer.registerMessageListener(session.listener("batch", got));
        session.start(consumer);
        Session.wait(got, 6);
    }

    /** Bodies that the client deflates and that it does not, and how they come back. */
    static void big(Session session) throws Exception {
        DefaultMQProducer producer = session.producer("big-p");
        byte[] text = new byte[200_000];
        for (int i = 0; i < text.length; i++) {
            text[i] = (byte) ('a' + i % 23);
        }
        byte[] random = new byte[300_000];
        new Random(1).nextBytes(random);
        session.sent("deflated", producer.send(new Message("big", "z", "deflated", text), new MessageQueue("big", BROKER, 1)));
        producer.setCompressMsgBodyOverHowmuch(1 << 22);
        session.sent("plain", producer.send(new Message("big", "r", "plain", random), new MessageQueue("big", BROKER, 1)));
        List<MessageExt> got = Collections.synchronizedList(new ArrayList<>());
        DefaultMQPushConsumer consumer = session.push("big-c", "big-c");
        consumer.subscribe("big", "*");
        consumer.registerMessageListener(session.listener("big", got));
        session.start(consumer);
        Session.wait(got, 2);
    }

    static void vip(Session session) throws Exception {
        DefaultMQProducer producer = session.configured(new DefaultMQProducer("vip-p"), "vip-p");
        producer.setVipChannelEnabled(true);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        session.atEnd(producer::shutdown);
        session.sent("vip", producer.send(Session.message("vip", "t", "k", "by the fast port"),
            new MessageQueue("vip", BROKER, 0)));
    }

    /** The binary form of the header, in both directions of choice. */
    static void binary(Session session) throws Exception {
        Field type = RemotingCommand.class.getDeclaredField("serializeTypeConfigInThisServer");
        type.setAccessible(true);
        Object before = type.get(null);
        type.set(null, SerializeType.ROCKETMQ);
        try (session) {
            DefaultMQProducer producer = session.producer("binary-p");
            for (int i = 0; i < 3; i++) {
                Message message = Session.message("binary", "t", "k" + i, "binary " + i);
                message.putUserProperty("text", "\u6771\u4eac");
                session.sent("binary", producer.send(message, new MessageQueue("binary", BROKER, i)));
            }
            List<MessageExt> got = Collections.synchronizedList(new ArrayList<>());
            DefaultMQPushConsumer consumer = session.push("binary-c", "binary-c");
            consumer.subscribe("binary", "*");
            consumer.registerMessageListener(session.listener("binary", got));
            session.start(consumer);
            Session.wait(got, 3);
        } finally {
            type.set(null, before);
        }
    }

    /** What the broker refuses, and what the client does before it asks. */
    static void missing(Session session) throws Exception {
        DefaultMQProducer producer = session.producer("missing-p");
        producer.setRetryTimesWhenSendFailed(0);
        session.sent("missing", producer.send(Session.message("missing", "t", "k", "there"),
            new MessageQueue("missing", BROKER, 0)));
        session.refused("queue 99", () -> producer.send(Session.message("missing", "t", "k", "x"),
            new MessageQueue("missing", BROKER, 99)));
        producer.setMaxMessageSize(8 << 20);
        producer.setCompressMsgBodyOverHowmuch(16 << 20);
        session.refused("5 MiB", () -> producer.send(new Message("missing", new byte[5 << 20]),
            new MessageQueue("missing", BROKER, 0)));
        session.refused("no default", () -> {
            producer.setCreateTopicKey("not-there");
            return producer.send(Session.message("missing-2", "t", "k", "x"), new MessageQueue("missing-2", BROKER, 0));
        });
        session.refused("illegal name", () -> producer.send(Session.message("miss ing", "t", "k", "x")));
        session.refused("system topic", () -> producer.send(Session.message("SCHEDULE_TOPIC_XXXX", "t", "k", "x")));
        session.refused("by id", () -> producer.viewMessage("missing", "7F000002000000010000000000FFFFFF"));
    }

    /** Heartbeats and polls of routes, as often as a client can be told. */
    static void idle(Session session) throws Exception {
        DefaultMQProducer producer = session.configured(new DefaultMQProducer("idle-p"), "idle-p");
        producer.setHeartbeatBrokerInterval(500);
        producer.setPollNameServerInterval(500);
        producer.start();
        session.atEnd(producer::shutdown);
        session.sent("idle", producer.send(Session.message("idle", "t", "k", "before"), new MessageQueue("idle", BROKER, 0)));
        Session.settled(producer.getDefaultMQProducerImpl().getmQClientFactory());
        Session.sleep(600); // one more of each
        session.sent("idle", producer.send(Session.message("idle", "t", "k", "after"), new MessageQueue("idle", BROKER, 0)));
    }

    /** A producer whose sends are traced by messages of a topic of their own. */
    static void trace(Session session) throws Exception {
        DefaultMQProducer producer = session.configured(new DefaultMQProducer("trace-p", null, true, null), "trace-p");
        producer.setSendMsgTimeout(10_000);
        producer.start();
        session.atEnd(producer::shutdown);
        session.sent("trace", producer.send(Session.message("traced", "t", "k", "traced"), new MessageQueue("traced", BROKER, 0)));
        Session.until(() -> stored(producer, "RMQ_SYS_TRACE_TOPIC") > 0);
    }
}
