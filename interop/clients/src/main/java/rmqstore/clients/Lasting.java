package rmqstore.clients;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Scenarios of which one begins what another ends: a client dies, a server is exchanged for another. */
final class Lasting {
    private static final String BROKER = "broker-a";
    private static final int QUEUES = 4;

    private Lasting() {
    }

    private static List<MessageExt> list() {
        return Collections.synchronizedList(new ArrayList<>());
    }

    private static TransactionMQProducer producer(Session session, List<MessageExt> checked, boolean knows)
        throws Exception {
        TransactionMQProducer producer = session.configured(new TransactionMQProducer("open-p"), "open-p");
        producer.setSendMsgTimeout(10_000);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return (LocalTransactionState) argument;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                session.got("check", message);
                checked.add(message);
                if (!knows) {
                    return LocalTransactionState.UNKNOW;
                }
                return message.getKeys().equals("open-2")
                    ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        session.atEnd(producer::shutdown);
        return producer;
    }

    /** Messages of transactions: the first is committed, the others stay open. */
    static void open(Session session) throws Exception {
        List<MessageExt> checked = list();
        TransactionMQProducer producer = producer(session, checked, false);
        for (int n = 0; n < 4; n++) {
            Message message = Session.message("opened", "o", "open-" + n, "open " + n);
            session.sent("open", producer.sendMessageInTransaction(message,
                n == 0 ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.UNKNOW));
        }
        Session.wait(checked, session.request.getIntValue("checks"));
    }

    /** The producer comes back, and now knows how they end: message 2 is not to be seen. */
    static void finish(Session session) throws Exception {
        List<MessageExt> checked = list();
        TransactionMQProducer producer = producer(session, checked, true);
        producer.fetchPublishMessageQueues("opened");
        List<MessageExt> got = list();
        DefaultMQPushConsumer consumer = session.push("open-c", "open-c");
        consumer.subscribe("opened", "*");
        consumer.registerMessageListener(session.listener("open", got));
        session.start(consumer);
        Session.wait(got, 3);
        Session.until(() -> checked.stream().anyMatch(message -> message.getKeys().equals("open-2")));
        Session.sleep(300);
    }

    /** Sends some messages to each queue. */
    static void fill(Session session) throws Exception {
        DefaultMQProducer producer = session.producer("turns-p");
        String run = session.request.getString("run");
        for (int n = 0; n < session.request.getIntValue("count"); n++) {
            Message message = Session.message("turns", "t", run + "-" + n, run + " " + n);
            session.sent("turns", producer.send(message, new MessageQueue("turns", BROKER, n % QUEUES)));
        }
    }

    /** An orderly consumer that says what it gets, until it has so many messages or is killed. */
    static void stay(Session session) throws Exception {
        List<MessageExt> got = list();
        DefaultMQPushConsumer consumer = session.push("turns-c", session.request.getString("instance"));
        consumer.subscribe("turns", "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            messages.forEach(message -> session.got("turns", message));
            got.addAll(messages);
            return ConsumeOrderlyStatus.SUCCESS;
        });
        session.start(consumer);
        session.say("started");
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(session.request.getIntValue("seconds"));
        while (got.size() < session.request.getIntValue("count") && System.nanoTime() < deadline) {
            Session.sleep(20);
        }
    }
}
