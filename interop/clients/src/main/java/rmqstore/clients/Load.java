package rmqstore.clients;

import com.alibaba.fastjson.JSONObject;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Producers and a consumer that go on whatever becomes of the server, until they are told to stop. */
final class Load {
    private static final String BROKER = "broker-a";
    private static final int QUEUES = 4;

    private final JSONObject request;
    private final Session session;
    private final String topic;
    private final Queue<Object[]> said = new ConcurrentLinkedQueue<>();
    private final AtomicInteger errors = new AtomicInteger();
    private final List<Thread> threads = new ArrayList<>();
    private volatile boolean stop;

    Load(JSONObject request) {
        this.request = request;
        session = new Session(request);
        topic = request.getString("topic");
    }

    void start() throws Exception {
        String name = request.getString("name");
        if (request.getBooleanValue("consume")) {
            DefaultMQPushConsumer consumer = session.push(topic + "-c", name + "-c");
            consumer.setPersistConsumerOffsetInterval(500);
            consumer.setHeartbeatBrokerInterval(1000);
            consumer.setPollNameServerInterval(1000);
            consumer.setPullTimeDelayMillsWhenException(200);
            consumer.subscribe(topic, "*");
            // In the file before the consumer answers: it may be killed, and is then known to have had it.
            FileOutputStream file = new FileOutputStream(request.getString("consumed"), true);
            consumer.registerMessageListener((List<MessageExt> messages, ConsumeConcurrentlyContext context) -> {
                for (MessageExt message : messages) {
                    try {
                        file.write((new String(message.getBody(), StandardCharsets.UTF_8) + "\n")
                            .getBytes(StandardCharsets.UTF_8));
                    } catch (IOException e) {
                        return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                    }
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            session.start(consumer);
        }
        DefaultMQProducer producer = session.configured(new DefaultMQProducer(topic + "-p"), name + "-p");
        producer.setSendMsgTimeout(2000);
        producer.setRetryTimesWhenSendFailed(0); // only what is answered counts
        producer.setHeartbeatBrokerInterval(1000);
        producer.setPollNameServerInterval(1000);
        producer.start();
        session.atEnd(producer::shutdown);
        for (int i = 0; i < request.getIntValue("threads"); i++) {
            int number = i;
            Thread thread = new Thread(() -> produce(producer, name + "-" + number), "load");
            thread.setDaemon(true);
            thread.start();
            threads.add(thread);
        }
    }

    private void produce(DefaultMQProducer producer, String who) {
        for (int n = 0; !stop; n++) {
            String body = who + ":" + n;
            Message message = Session.message(topic, "t", body, body);
            try {
                SendResult sent = producer.send(message, new MessageQueue(topic, BROKER, n % QUEUES));
                if (sent.getSendStatus() == SendStatus.SEND_OK) {
                    said.add(new Object[] {"acknowledged", body, sent.getMessageQueue().getQueueId(),
                        sent.getQueueOffset(), sent.getOffsetMsgId()});
                } else {
                    said.add(new Object[] {"status", sent.getSendStatus().name()});
                }
            } catch (Exception e) {
                errors.incrementAndGet();
                said.add(new Object[] {"error", e.toString()});
                pause();
            }
        }
    }

    private static void pause() {
        try {
            Session.sleep(50);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /** What was acknowledged since the last call. */
    void rows(JSONObject end) {
        for (Object[] row = said.poll(); row != null; row = said.poll()) {
            Main.row(row);
        }
        end.put("errors", errors.get());
    }

    void stop(JSONObject end) throws Exception {
        stop = true;
        for (Thread thread : threads) {
            thread.join(10_000);
        }
        session.close();
        rows(end);
    }

    /** Ends the sends; consuming goes on. */
    void quiet() throws Exception {
        stop = true;
        for (Thread thread : threads) {
            thread.join(10_000);
        }
    }
}
