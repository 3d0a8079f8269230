package rmqstore.clients;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Scenarios of push consumers. */
final class Pushing {
    private static final String BROKER = "broker-a";
    private static final int QUEUES = 4;

    private Pushing() {
    }

    /** Messages into the queues in turn: tags created, paid; amount 0, 100, 200...; region eu, us, eu... */
    static void fill(DefaultMQProducer producer, String topic, int count) throws Exception {
        for (int i = 0; i < count; i++) {
            Message message = Session.message(topic, i / QUEUES % 2 == 0 ? "created" : "paid", "order-" + i, "order " + i);
            message.putUserProperty("amount", Integer.toString(100 * i));
            message.putUserProperty("region", i % 3 == 0 ? "us" : "eu");
            producer.send(message, new MessageQueue(topic, BROKER, i % QUEUES));
        }
    }

    private static List<MessageExt> list() {
        return Collections.synchronizedList(new ArrayList<>());
    }

    /** What was there before, what comes while it waits, and where a second run of the group goes on. */
    static void push(Session session) throws Exception {
        DefaultMQProducer producer = session.producer("push-p");
        fill(producer, "pushed", 12);
        List<MessageExt> got = list();
        DefaultMQPushConsumer consumer = session.push("push-c", "push-c");
        consumer.subscribe("pushed", "*");
        consumer.registerMessageListener(session.listener("first", got));
        consumer.start();
        Session.wait(got, 12);
        for (int i = 0; i < QUEUES; i++) {
            producer.send(Session.message("pushed", "late", "late-" + i, "late " + i), new MessageQueue("pushed", BROKER, i));
        }
        Session.wait(got, 12 + QUEUES);
        consumer.shutdown();
        fill(producer, "pushed", QUEUES);
        List<MessageExt> again = list();
        DefaultMQPushConsumer second = session.push("push-c", "push-c2");
        second.subscribe("pushed", "*");
        second.registerMessageListener(session.listener("second", again));
        session.start(second);
        Session.wait(again, QUEUES);
    }

    static void tags(Session session) throws Exception {
        DefaultMQProducer producer = session.producer("tags-p");
        fill(producer, "tagged", 16);
        List<MessageExt> got = list();
        DefaultMQPushConsumer consumer = session.push("tags-c", "tags-c");
        consumer.subscribe("tagged", "paid || refunded");
        consumer.registerMessageListener(session.listener("tags", got));
        session.start(consumer);
        Session.wait(got, 8);
        producer.send(Session.message("tagged", "created", "k", "not for us"), new MessageQueue("tagged", BROKER, 0));
        producer.send(Session.message("tagged", "refunded", "k", "for us"), new MessageQueue("tagged", BROKER, 0));
        Session.wait(got, 9);
    }

    static void sql(Session session) throws Exception {
        DefaultMQProducer producer = session.producer("sql-p");
        fill(producer, "selected", 16);
        List<MessageExt> got = list();
        DefaultMQPushConsumer consumer = session.push("sql-c", "sql-c");
        consumer.subscribe("selected", MessageSelector.bySql("amount > 500 AND region = 'eu'"));
        consumer.registerMessageListener(session.listener("sql", got));
        session.start(consumer);
        Session.wait(got, 6);
        DefaultMQPushConsumer bad = session.push("sql-bad-c", "sql-bad-c");
        bad.subscribe("selected", MessageSelector.bySql("amount >"));
        bad.registerMessageListener(session.listener("bad", list()));
        session.refused("bad sql", () -> {
            session.start(bad);
            return "started";
        });
    }

    static void broadcast(Session session) throws Exception {
        DefaultMQProducer producer = session.producer("broadcast-p");
        fill(producer, "shouted", 8);
        for (String name : List.of("one", "two")) {
            List<MessageExt> got = list();
            DefaultMQPushConsumer consumer = session.push("broadcast-c", "broadcast-" + name);
            var model = consumer.getMessageModel(); // its package is another in 5.x
            consumer.setMessageModel(Enum.valueOf(model.getDeclaringClass(), "BROADCASTING"));
            consumer.subscribe("shouted", "*");
            consumer.registerMessageListener(session.listener(name, got));
            session.start(consumer);
            Session.wait(got, 8);
        }
    }

    /** Two share the queues, one goes, the other has them all. */
    static void rebalance(Session session) throws Exception {
        DefaultMQProducer producer = session.producer("rebalance-p");
        fill(producer, "shared", QUEUES);
        List<MessageExt> first = list();
        List<MessageExt> second = list();
        DefaultMQPushConsumer one = quiet(session, "rebalance-1", first);
        DefaultMQPushConsumer two = quiet(session, "rebalance-2", second);
        session.start(one);
        Session.until(() -> queues(one) == QUEUES && first.size() >= QUEUES);
        session.say("alone", queues(one), first.size() >= QUEUES);
        two.start();
        Session.until(() -> queues(one) == 2 && queues(two) == 2);
        session.say("shared", queues(one), queues(two));
        Session.sleep(300);
        fill(producer, "shared", QUEUES);
        Session.until(() -> first.size() + second.size() >= 2 * QUEUES);
        session.say("after", first.size() + second.size() >= 2 * QUEUES, second.size() >= 2);
        two.shutdown();
        Session.until(() -> queues(one) == QUEUES);
        session.say("alone again", queues(one));
        fill(producer, "shared", QUEUES);
        Session.until(() -> first.size() + second.size() >= 3 * QUEUES);
        session.say("all", first.size() + second.size() >= 3 * QUEUES);
    }

    private static DefaultMQPushConsumer quiet(Session session, String instance, List<MessageExt> got) throws Exception {
        DefaultMQPushConsumer consumer = session.push("rebalance-c", instance);
        consumer.subscribe("shared", "*");
        consumer.registerMessageListener((List<MessageExt> messages, org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext context) -> {
            got.addAll(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        return consumer;
    }

    private static int queues(DefaultMQPushConsumer consumer) {
        return (int) consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().stream()
            .filter(queue -> !queue.getTopic().startsWith("%")).count();
    }

    /** A consumer that keeps the order of each queue, and holds a queue up once. */
    static void orderly(Session session) throws Exception {
        DefaultMQProducer producer = session.producer("orderly-p");
        fill(producer, "ordered", 12);
        List<MessageExt> got = list();
        Map<String, Boolean> held = new ConcurrentHashMap<>();
        DefaultMQPushConsumer consumer = session.push("orderly-c", "orderly-c");
        consumer.subscribe("ordered", "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            for (MessageExt message : messages) {
                if (message.getKeys().equals("order-5") && held.put("order-5", true) == null) {
                    context.setSuspendCurrentQueueTimeMillis(200);
                    return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                }
                session.got("orderly", message);
                got.add(message);
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        session.start(consumer);
        Session.wait(got, 12);
        for (int queue = 0; queue < QUEUES; queue++) {
            StringBuilder order = new StringBuilder();
            synchronized (got) {
                for (MessageExt message : got) {
                    if (message.getQueueId() == queue) {
                        order.append(new String(message.getBody(), StandardCharsets.UTF_8)).append(", ");
                    }
                }
            }
            session.say("order", queue, order.toString());
        }
    }
}
