package rmqstore.clients;

import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.MessageQueueSelector;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * A producer as people write it for RocketMQ: one message into the third queue of a topic.
 *
 * <p>{@code Producer [ADDRESS OF THE NAME SERVER]}; without one it is {@code localhost:9876}.
 */
public final class Producer {
    private Producer() {
    }

    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("Producer");
        producer.setNamesrvAddr(args.length > 0 ? args[0] : "localhost:9876");
        producer.start();
        try {
            Message message = new Message("Topic1", "TagA", "Hello RocketMQ".getBytes(StandardCharsets.UTF_8));
            message.putUserProperty("psly", "psly");
            SendResult result = producer.send(message, new MessageQueueSelector() {
                @Override
                public MessageQueue select(List<MessageQueue> queues, Message m, Object argument) {
                    return queues.get((Integer) argument % queues.size());
                }
            }, 2);
            System.out.println(result);
        } finally {
            producer.shutdown();
        }
    }
}
