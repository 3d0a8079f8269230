package rmqstore.clients;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * A program of sends and of consumers that come and go, written elsewhere and done here step by step.
 *
 * <p>A message fails while it was given back fewer times than its property {@code fail} says.
 */
final class Program implements TransactionListener {
    private static final String BROKER = "broker-a";
    private static final int GIVEN_BACK_AT_MOST = 2;
    private static final String SQL = "sql:"; // what such an expression begins with
    private static final long REPLY_MS = 30_000;

    private final JSONObject request;
    private final Map<String, DefaultMQPushConsumer> consumers = new HashMap<>();
    private final AtomicLong lastDelivery = new AtomicLong(System.nanoTime());
    private final Set<String> open = ConcurrentHashMap.newKeySet(); // keys of what has to be asked for
    private final Set<String> asked = ConcurrentHashMap.newKeySet();
    private final AtomicInteger unanswered = new AtomicInteger(); // of the async sends
    private Session session;
    private TransactionMQProducer producer;
    private DefaultMQProducer replier;

    Program(JSONObject request) {
        this.request = request;
    }

    void run() throws Exception {
        try (Session made = new Session(request)) {
            session = made;
            producer = made.configured(new TransactionMQProducer("program-p"), "program-p");
            producer.setSendMsgTimeout(20_000);
            producer.setRetryTimesWhenSendFailed(0);
            producer.setTransactionListener(this);
            producer.start();
            made.atEnd(producer::shutdown);
            replier = made.producer("program-r");
            for (Object step : request.getJSONArray("steps")) {
                step((JSONObject) step);
            }
            settle(2600); // what was given back last is there a second later
            consumers.values().forEach(DefaultMQPushConsumer::shutdown);
        }
    }

    private void step(JSONObject step) throws Exception {
        String topic = step.getString("topic");
        switch (step.getString("do")) {
            case "send" -> {
                producer.setDefaultTopicQueueNums(4);
                MessageQueue queue = new MessageQueue(topic, BROKER, step.getIntValue("queue"));
                if (step.getBooleanValue("oneway")) {
                    producer.sendOneway(message(topic, step), queue);
                } else if (step.getBooleanValue("async")) {
                    sendAsync(message(topic, step), queue);
                } else {
                    session.say("sent", step.getString("key"),
                        producer.send(message(topic, step), queue).getSendStatus().name());
                }
            }
            case "batch" -> {
                producer.setDefaultTopicQueueNums(4);
                List<Message> batch = new ArrayList<>();
                for (Object each : step.getJSONArray("messages")) {
                    batch.add(message(topic, (JSONObject) each));
                }
                session.say("sent", topic, producer.send(batch, new MessageQueue(topic, BROKER,
                    step.getIntValue("queue"))).getSendStatus().name());
            }
            case "request" -> {
                producer.setDefaultTopicQueueNums(4);
                MessageQueue queue = new MessageQueue(topic, BROKER, step.getIntValue("queue"));
                session.say("answered", step.getString("key"),
                    Session.text(producer.request(message(topic, step), queue, REPLY_MS).getBody()));
            }
            case "transaction" -> {
                producer.setDefaultTopicQueueNums(1); // else the client takes any queue
                LocalTransactionState outcome = LocalTransactionState.valueOf(step.getString("outcome"));
                session.say("sent", step.getString("key"),
                    producer.sendMessageInTransaction(message(topic, step), outcome).getSendStatus().name());
                if (outcome == LocalTransactionState.UNKNOW) {
                    open.add(step.getString("key"));
                }
            }
            case "start" -> start(step);
            case "stop" -> {
                settle(1600);
                consumers.remove(step.getString("instance")).shutdown();
            }
            case "settle" -> settle(step.getLongValue("ms"));
            default -> throw new IllegalArgumentException(step.toString());
        }
    }

    private void sendAsync(Message message, MessageQueue queue) throws Exception {
        unanswered.incrementAndGet();
        producer.send(message, queue, new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                session.say("sent", message.getKeys(), result.getSendStatus().name());
                unanswered.decrementAndGet();
            }

            @Override
            public void onException(Throwable error) {
                session.say("sent", message.getKeys(), error.toString());
                unanswered.decrementAndGet();
            }
        });
    }

    private static Message message(String topic, JSONObject step) {
        Message message = Session.message(topic, step.getString("tag"), step.getString("key"), step.getString("body"));
        message.setFlag(step.getIntValue("flag"));
        JSONObject properties = step.getJSONObject("properties");
        if (properties != null) {
            properties.forEach((name, value) -> message.putUserProperty(name, (String) value));
        }
        if (step.getIntValue("delay") != 0) {
            message.setDelayTimeLevel(step.getIntValue("delay"));
        }
        return message;
    }

    /** A consumer comes when there is nothing on its way, so that nothing is delivered twice. */
    private void start(JSONObject step) throws Exception {
        if (!consumers.isEmpty()) {
            settle(1600);
            // Else the one that comes may ask for an offset before the one that gives has told it.
            consumers.values().forEach(each -> each.getDefaultMQPushConsumerImpl().persistConsumerOffset());
            Session.sleep(100);
        }
        String group = step.getString("group");
        DefaultMQPushConsumer consumer = session.push(group, step.getString("instance"));
        consumer.setMaxReconsumeTimes(GIVEN_BACK_AT_MOST);
        for (Map.Entry<String, Object> each : step.getJSONObject("topics").entrySet()) {
            String expression = (String) each.getValue();
            if (expression.startsWith(SQL)) {
                consumer.subscribe(each.getKey(), MessageSelector.bySql(expression.substring(SQL.length())));
            } else {
                consumer.subscribe(each.getKey(), expression);
            }
        }
        switch (String.valueOf(step.getString("how"))) {
            case "orderly" -> consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                messages.forEach(message -> delivered(group, message));
                return ConsumeOrderlyStatus.SUCCESS;
            });
            case "broadcast" -> {
                var model = consumer.getMessageModel(); // its package is another in 5.x
                consumer.setMessageModel(Enum.valueOf(model.getDeclaringClass(), "BROADCASTING"));
                listen(consumer, step.getString("instance"));
            }
            case "reply" -> reply(consumer, group);
            default -> listen(consumer, group);
        }
        consumer.start();
        consumers.put(step.getString("instance"), consumer);
        Session.sleep(700); // the others hear of it and share the queues
        for (DefaultMQProducer each : List.of(producer, replier)) { // a reply finds its way by the client's id
            each.getDefaultMQProducerImpl().getmQClientFactory().sendHeartbeatToAllBrokerWithLock();
        }
    }

    private void delivered(String who, MessageExt message) {
        lastDelivery.set(System.nanoTime());
        Main.row("delivered", who, message.getKeys(), message.getReconsumeTimes(), message.getTopic(),
            new String(message.getBody(), StandardCharsets.UTF_8), message.getTags());
    }

    private void listen(DefaultMQPushConsumer consumer, String who) {
        consumer.registerMessageListener((List<MessageExt> messages, ConsumeConcurrentlyContext context) -> {
            context.setDelayLevelWhenNextConsume(1);
            MessageExt message = messages.get(0);
            delivered(who, message);
            String failures = message.getProperty("fail");
            return failures != null && message.getReconsumeTimes() < Integer.parseInt(failures)
                ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
    }

    /** Answers whom waits for it; other messages are only taken. */
    private void reply(DefaultMQPushConsumer consumer, String group) {
        consumer.registerMessageListener((List<MessageExt> messages, ConsumeConcurrentlyContext context) -> {
            MessageExt message = messages.get(0);
            delivered(group, message);
            if (message.getProperty("CORRELATION_ID") != null) {
                try {
                    byte[] answer = ("reply to " + message.getKeys()).getBytes(StandardCharsets.UTF_8);
                    session.say("replied", message.getKeys(),
                        replier.send(MessageUtil.createReplyMessage(message, answer)).getSendStatus().name());
                } catch (Exception e) {
                    session.say("replied", message.getKeys(), String.valueOf(e));
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
    }

    /** Returns when all sends are answered, open transactions were asked for, and nothing has come for so long. */
    private void settle(long quietMs) throws Exception {
        Session.until(() -> unanswered.get() == 0);
        lastDelivery.set(System.nanoTime());
        Session.until(() -> asked.containsAll(open) && System.nanoTime() - lastDelivery.get() > quietMs * 1_000_000);
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
        return (LocalTransactionState) argument;
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
        lastDelivery.set(System.nanoTime());
        asked.add(message.getKeys());
        return LocalTransactionState.valueOf(message.getProperty("after-check"));
    }
}
