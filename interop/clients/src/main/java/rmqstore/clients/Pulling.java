package rmqstore.clients;

import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Scenarios of pull consumers and of queries. */
final class Pulling {
    private static final String BROKER = "broker-a";

    private Pulling() {
    }

    private static void say(Session session, String who, PullResult result) {
        session.say("pulled", who, result.getPullStatus().name(), result.getNextBeginOffset(), result.getMinOffset(),
            result.getMaxOffset());
        if (result.getMsgFoundList() != null) {
            result.getMsgFoundList().forEach(message -> session.got(who, message));
        }
    }

    /** By hand: all, by tag, none of a tag, beyond the end; and an offset that is kept. */
    static void pull(Session session) throws Exception {
        DefaultMQProducer producer = session.producer("pull-p");
        Pushing.fill(producer, "pulled", 12);
        DefaultMQPullConsumer consumer = session.pull("pull-c");
        Set<MessageQueue> queues = new TreeSet<>(consumer.fetchSubscribeMessageQueues("pulled"));
        Session.settled(consumer.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory());
        for (MessageQueue queue : queues) {
            session.say("offset", queue.getQueueId(), consumer.fetchConsumeOffset(queue, true));
            say(session, "all", consumer.pull(queue, "*", 0, 2));
            say(session, "paid", consumer.pull(queue, "paid", 0, 32));
            say(session, "nothing", consumer.pull(queue, "refunded", 0, 32));
            say(session, "beyond", consumer.pull(queue, "*", 107, 32));
            consumer.updateConsumeOffset(queue, 2);
        }
        consumer.getDefaultMQPullConsumerImpl().persistConsumerOffset();
        Session.sleep(200);
        for (MessageQueue queue : queues) {
            session.say("offset", queue.getQueueId(), consumer.fetchConsumeOffset(queue, true));
        }
        MessageQueue none = new MessageQueue("pulled", BROKER, 77);
        session.refused("queue 77", () -> consumer.pull(none, "*", 0, 32));
        MessageQueue nowhere = new MessageQueue("not-there", BROKER, 0);
        session.refused("topic not there", () -> consumer.pull(nowhere, "*", 0, 32));
        session.refused("bad tags", () -> consumer.pull(queues.iterator().next(), " || ", 0, 32));
    }

    static void litePull(Session session) throws Exception {
        DefaultMQProducer producer = session.producer("litepull-p");
        Pushing.fill(producer, "lite", 12);
        DefaultLitePullConsumer consumer = session.lite("litepull-c");
        consumer.setConsumeFromWhere(org.apache.rocketmq.common.consumer.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe("lite", "*");
        consumer.start();
        session.atEnd(consumer::shutdown);
        List<MessageExt> got = new ArrayList<>();
        for (int tries = 0; tries < 20 && got.size() < 12; tries++) {
            got.addAll(consumer.poll(500));
        }
        got.forEach(message -> session.got("litepull", message));
        consumer.commitSync();
        Session.sleep(300);
    }

    static void liteAssign(Session session) throws Exception {
        DefaultMQProducer producer = session.producer("liteassign-p");
        Pushing.fill(producer, "assigned", 12);
        DefaultLitePullConsumer consumer = session.lite("liteassign-c");
        consumer.start();
        session.atEnd(consumer::shutdown);
        Collection<MessageQueue> queues = consumer.fetchMessageQueues("assigned");
        consumer.assign(queues);
        for (MessageQueue queue : new TreeSet<>(queues)) {
            consumer.seekToBegin(queue);
            session.say("at", queue.getQueueId(), consumer.offsetForTimestamp(queue, 0L));
        }
        List<MessageExt> got = new ArrayList<>();
        for (int tries = 0; tries < 20 && got.size() < 12; tries++) {
            got.addAll(consumer.poll(500));
        }
        got.forEach(message -> session.got("assigned", message));
        consumer.seekToEnd(queues.iterator().next());
        consumer.commitSync();
        Session.sleep(300);
    }

    static void query(Session session) throws Exception {
        DefaultMQProducer producer = session.producer("query-p");
        MessageQueue queue = new MessageQueue("queried", BROKER, 3);
        long before = System.currentTimeMillis();
        SendResult sent = producer.send(Session.message("queried", "t", "the-key other", "find me"), queue);
        session.sent("query", sent);
        producer.send(Session.message("queried", "t", "the-key", "and me"), queue);
        Session.until(() -> isFound(producer, sent.getMsgId())); // the index
        session.got("by offset id", producer.viewMessage("queried", sent.getOffsetMsgId()));
        session.got("by unique key", producer.viewMessage("queried", sent.getMsgId()));
        QueryResult found = producer.queryMessage("queried", "the-key", 32, before - 60_000, before + 60_000);
        List<MessageExt> messages = new ArrayList<>(found.getMessageList());
        Collections.reverse(messages);
        messages.sort((a, b) -> Long.compare(a.getQueueOffset(), b.getQueueOffset()));
        messages.forEach(message -> session.got("by key", message));
        session.refused("no such key", () -> producer.queryMessage("queried", "no-key", 32, 0, before + 60_000));
        session.say("max", producer.maxOffset(queue));
        session.say("min", producer.minOffset(queue));
        session.say("at the beginning", producer.searchOffset(queue, before - 3_600_000));
        session.say("at the end", producer.searchOffset(queue, before + 3_600_000));
        session.say("earliest", Math.abs(producer.earliestMsgStoreTime(queue) - before) < 60_000);
        session.say("earliest of none", producer.earliestMsgStoreTime(new MessageQueue("queried", BROKER, 0)));
        session.say("max of none", producer.maxOffset(new MessageQueue("queried", BROKER, 0)));
        create(producer, "made-by-client", 3);
        Session.sleep(300);
        session.sent("made", producer.send(Session.message("made-by-client", "t", "k", "x"),
            new MessageQueue("made-by-client", BROKER, 2)));
        session.say("queues", producer.fetchPublishMessageQueues("made-by-client").size());
    }

    private static boolean isFound(DefaultMQProducer producer, String id) {
        try {
            return producer.viewMessage("queried", id) != null;
        } catch (Exception e) {
            return false;
        }
    }

    /** createTopic, which got another argument in 5.x. */
    static void create(DefaultMQProducer producer, String topic, int queues) throws Exception {
        try {
            DefaultMQProducer.class.getMethod("createTopic", String.class, String.class, int.class)
                .invoke(producer, "TBW102", topic, queues);
        } catch (NoSuchMethodException e) {
            DefaultMQProducer.class.getMethod("createTopic", String.class, String.class, int.class, java.util.Map.class)
                .invoke(producer, "TBW102", topic, queues, new java.util.HashMap<String, String>());
        } catch (InvocationTargetException e) {
            throw (Exception) e.getCause();
        }
    }
}
