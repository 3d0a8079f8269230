package rmqstore.clients;

import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Scenarios of clients that sign what they ask for, with the request's {@code accounts}: secrets by key. */
final class Accounts {
    private static final String BROKER = "broker-a";
    private static final int QUEUES = 4;

    private Accounts() {
    }

    private static SessionCredentials account(Session session, String key) {
        JSONObject accounts = session.request.getJSONObject("accounts");
        return new SessionCredentials(key, accounts.getString(key));
    }

    private static Message message(String topic, String body) {
        return Session.message(topic, "signed", "k", body);
    }

    private static String found(PullResult result) {
        return result.getPullStatus().name();
    }

    /** One may write to a topic, one may read it; and what each of them may not. */
    static void accounts(Session session) throws Exception {
        SessionCredentials sender = account(session, "sender-key");
        session.sign(sender);
        DefaultMQProducer producer = session.producer("signed-p");
        for (int i = 0; i < QUEUES; i++) {
            Message message = message("signed", "signed " + i);
            message.putUserProperty("text", "K\u00f6ln \u6771\u4eac \ud83d\ude80");
            session.sent("signed", producer.send(message, new MessageQueue("signed", BROKER, i)));
        }
        DefaultMQPullConsumer blind = session.pull("signed-blind-c");

        SessionCredentials reader = account(session, "reader-key");
        session.sign(reader);
        List<MessageExt> got = Collections.synchronizedList(new ArrayList<>());
        DefaultMQPushConsumer consumer = session.push("signed-c", "signed-c");
        consumer.subscribe("signed", "*");
        consumer.registerMessageListener(session.listener("signed", got));
        session.start(consumer);
        Session.wait(got, QUEUES);
        MessageQueue queue = new MessageQueue("signed", BROKER, 0);
        DefaultMQPullConsumer pull = session.pull("signed-pull-c");
        PullResult pulled = pull.pull(queue, "*", 0, 1);
        pulled.getMsgFoundList().forEach(message -> session.got("pulled", message));
        DefaultMQPullConsumer denied = session.pull("signed-denied-c");
        DefaultMQProducer dumb = session.producer("signed-dumb-p");

        session.refused("a topic of others", () -> producer.send(message("others", "x"), new MessageQueue("others", BROKER, 0)));
        session.refused("read by a sender", () -> found(blind.pull(queue, "*", 0, 1)));
        session.refused("sent by a reader", () -> dumb.send(message("signed", "x"), queue));
        session.refused("a group of others", () -> found(denied.pull(queue, "*", 0, 1)));
        session.refused("an administrator's", () -> {
            Pulling.create(producer, "signed-made", 1);
            return "made";
        });
        session.refused("a batch", () -> producer.send(List.of(message("others", "x"), message("others", "y")),
            new MessageQueue("others", BROKER, 0)).getSendStatus());

        // They know their routes, so that it is the broker who refuses them.
        String secret = sender.getSecretKey();
        sender.setSecretKey("wrong-secret");
        session.refused("a wrong secret", () -> producer.send(message("signed", "x"), queue));
        sender.setSecretKey(secret);
        sender.setAccessKey("nobody");
        session.refused("nobody's key", () -> producer.send(message("signed", "x"), queue));
        sender.setAccessKey("sender-key");
        session.sent("after all", producer.send(message("signed", "right again"), queue));
    }

    /** They sign nothing, or wrongly, from their first request on. */
    static void strangers(Session session) throws Exception {
        DefaultMQProducer unsigned = session.producer("unsigned-p");
        session.refused("unsigned", () -> unsigned.send(message("signed", "x")));
        session.sign(new SessionCredentials("sender-key", "wrong-secret"));
        DefaultMQProducer wrong = session.producer("wrong-p");
        session.refused("wrongly signed", () -> wrong.send(message("signed", "x")));
    }
}
