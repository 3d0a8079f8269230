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
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
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

    private final JSONObject request;
    private final Map<String, DefaultMQPushConsumer> consumers = new HashMap<>();
    private final AtomicLong lastDelivery = new AtomicLong(System.nanoTime());
    private final Set<String> open = ConcurrentHashMap.newKeySet(); // keys of what has to be asked for
    private final Set<String> asked = ConcurrentHashMap.newKeySet();
    private Session session;
    private TransactionMQProducer producer;

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
            consumer.subscribe(each.getKey(), (String) each.getValue());
        }
        consumer.registerMessageListener((List<MessageExt> messages, ConsumeConcurrentlyContext context) -> {
            context.setDelayLevelWhenNextConsume(1);
            lastDelivery.set(System.nanoTime());
            MessageExt message = messages.get(0);
            Main.row("delivered", group, message.getKeys(), message.getReconsumeTimes(), message.getTopic(),
                new String(message.getBody(), StandardCharsets.UTF_8), message.getTags());
            String failures = message.getProperty("fail");
            return failures != null && message.getReconsumeTimes() < Integer.parseInt(failures)
                ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        consumers.put(step.getString("instance"), consumer);
        Session.sleep(700); // the others hear of it and share the queues
    }

    /** Returns when open transactions were asked for, and nothing has come for so long. */
    private void settle(long quietMs) throws Exception {
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
