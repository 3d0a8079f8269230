package rmqstore.clients;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Scenarios of messages that come later, again, or as an answer. */
final class Ends {
    private static final String BROKER = "broker-a";

    private Ends() {
    }

    private static List<MessageExt> list() {
        return Collections.synchronizedList(new ArrayList<>());
    }

    static void delay(Session session) throws Exception {
        DefaultMQProducer producer = session.producer("delay-p");
        Message message = Session.message("delayed", "d", "delay-1", "delayed");
        message.setDelayTimeLevel(1);
        long sent = System.currentTimeMillis();
        session.sent("delay", producer.send(message, new MessageQueue("delayed", BROKER, 3)));
        List<MessageExt> got = list();
        DefaultMQPushConsumer consumer = session.push("delay-c", "delay-c");
        consumer.subscribe("delayed", "*");
        consumer.registerMessageListener(session.listener("delay", got));
        session.start(consumer);
        Session.until(() -> !got.isEmpty());
        session.say("not before", System.currentTimeMillis() - sent >= 1000);
    }

    /** Commit, rollback, and one that the broker has to ask for. */
    static void transactions(Session session) throws Exception {
        TransactionMQProducer producer = session.configured(new TransactionMQProducer("tx-p"), "tx-p");
        producer.setSendMsgTimeout(10_000);
        List<MessageExt> checked = list();
        producer.setDefaultTopicQueueNums(1); // else the client takes any queue
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return (LocalTransactionState) argument;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                session.got("check", message);
                checked.add(message);
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        session.atEnd(producer::shutdown);
        int n = 0;
        for (LocalTransactionState state : List.of(LocalTransactionState.COMMIT_MESSAGE,
            LocalTransactionState.ROLLBACK_MESSAGE, LocalTransactionState.UNKNOW)) {
            Message message = Session.message("tx", "t", "tx-" + n, "transaction " + n);
            session.sent("tx", producer.sendMessageInTransaction(message, state));
            n++;
        }
        List<MessageExt> got = list();
        DefaultMQPushConsumer consumer = session.push("tx-c", "tx-c");
        consumer.subscribe("tx", "*");
        consumer.registerMessageListener(session.listener("tx", got));
        session.start(consumer);
        Session.wait(got, 2);
    }

    /** A message that fails twice: once more, then among the dead letters; and one that fails once. */
    static void retry(Session session) throws Exception {
        DefaultMQProducer producer = session.producer("retry-p");
        producer.send(Session.message("retried", "r", "always", "fails always"), new MessageQueue("retried", BROKER, 1));
        List<MessageExt> got = list();
        DefaultMQPushConsumer consumer = session.push("retry-c", "retry-c");
        consumer.setMaxReconsumeTimes(1);
        consumer.subscribe("retried", "*");
        consumer.registerMessageListener((List<MessageExt> messages, ConsumeConcurrentlyContext context) -> {
            messages.forEach(message -> session.got("retry", message));
            got.addAll(messages);
            context.setDelayLevelWhenNextConsume(1);
            MessageExt message = messages.get(0);
            return message.getKeys().equals("always") || message.getReconsumeTimes() == 0
                ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        session.start(consumer);
        Session.wait(got, 2); // one after the other, so that their order in the queue of retries is known
        producer.send(Session.message("retried", "r", "once", "fails once"), new MessageQueue("retried", BROKER, 2));
        Session.wait(got, 4);
        MessageQueue dead = new MessageQueue("%DLQ%retry-c", BROKER, 0);
        Session.until(() -> dead(producer, dead) > 0);
        session.say("dead letters", dead(producer, dead));
    }

    private static long dead(DefaultMQProducer producer, MessageQueue queue) {
        try {
            return producer.maxOffset(queue);
        } catch (Exception e) {
            return 0;
        }
    }

    static void request(Session session) throws Exception {
        DefaultMQProducer producer = session.producer("request-p");
        DefaultMQProducer replier = session.producer("reply-p");
        producer.setDefaultTopicQueueNums(1); // else the client takes any queue
        producer.send(Session.message("questions", "q", "warm", "warm"), new MessageQueue("questions", BROKER, 0));
        List<MessageExt> got = list();
        CountDownLatch replied = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = session.push("request-c", "request-c");
        consumer.subscribe("questions", "*");
        consumer.registerMessageListener((List<MessageExt> messages, ConsumeConcurrentlyContext context) -> {
            for (MessageExt message : messages) {
                got.add(message);
                if (message.getKeys().equals("warm")) {
                    continue;
                }
                session.got("question", message);
                try {
                    byte[] answer = ("reply to " + Session.text(message.getBody())).getBytes(StandardCharsets.UTF_8);
                    SendResult sent = replier.send(MessageUtil.createReplyMessage(message, answer));
                    session.say("replied", sent.getSendStatus().name());
                } catch (Exception e) {
                    session.say("failed", String.valueOf(e));
                }
                replied.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        session.start(consumer);
        Session.until(() -> !got.isEmpty());
        for (DefaultMQProducer each : List.of(producer, replier)) { // the reply finds its way by the client's id
            each.getDefaultMQProducerImpl().getmQClientFactory().sendHeartbeatToAllBrokerWithLock();
        }
        Message answer = producer.request(Session.message("questions", "q", "k", "question"),
            new MessageQueue("questions", BROKER, 0), 8000);
        session.say("answered", Session.text(answer.getBody()));
        replied.await(10, TimeUnit.SECONDS);
    }
}
