package rmqstore.interop;

import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.expression.MQFilterException;
import org.apache.rocketmq.filter.parser.SelectorParser;

/** The real SQL92 filters: parsed, evaluated, and as a broker applies them to what is pulled. */
final class Filters {
    private static final String REFUSED = "refused";
    private static final int PULL_BATCH = 32;
    private static final long STACK_BYTES = 64L << 20; // nesting is no matter of these comparisons

    private Filters() {
    }

    /**
     * A row an expression of {@code cases}, {@code [expression, [properties in base64, ...]]}: refused, or
     * a digit a string of properties, 1 where it passes.
     */
    static void evaluate(JSONObject request) throws Exception {
        FutureTask<Void> task = new FutureTask<>(() -> {
            for (Object each : request.getJSONArray("cases")) {
                List<?> given = (List<?>) each;
                StoreDriver.row(outcome((String) given.get(0), (List<?>) given.get(1)));
            }
            return null;
        });
        new Thread(null, task, "filters", STACK_BYTES).start();
        try {
            task.get();
        } catch (ExecutionException e) {
            throw new IllegalStateException(e.getCause());
        }
    }

    private static String outcome(String text, List<?> stored) {
        Expression expression;
        try {
            expression = SelectorParser.parse(text);
        } catch (MQFilterException e) {
            return REFUSED;
        }
        StringBuilder found = new StringBuilder();
        for (Object each : stored) {
            byte[] bytes = Base64.getDecoder().decode((String) each);
            Map<String, String> properties =
                MessageDecoder.string2messageProperties(new String(bytes, StandardCharsets.UTF_8));
            Object value = null;
            try {
                value = expression.evaluate(new MessageEvaluationContext(properties));
            } catch (Exception e) {
                value = null; // as ExpressionMessageFilter takes it
            }
            found.append(Boolean.TRUE.equals(value) ? '1' : '0');
        }
        return found.toString();
    }

    /** A row an expression: what a broker gives a pull consumer of it, queue ids and queue offsets in turn. */
    static void pull(String namesrv, JSONObject request) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("interop-filters");
        consumer.setNamesrvAddr(namesrv);
        consumer.setClientIP("127.0.0.1");
        consumer.start();
        try {
            Set<MessageQueue> queues = new TreeSet<>(consumer.fetchSubscribeMessageQueues(request.getString("topic")));
            // Which version the broker is of is in the answer to a heartbeat only.
            MQClientInstance client =
                consumer.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory();
            client.updateTopicRouteInfoFromNameServer(request.getString("topic"));
            client.sendHeartbeatToAllBrokerWithLock();
            for (String expression : request.getJSONArray("expressions").toJavaList(String.class)) {
                List<Object> found = new ArrayList<>();
                for (MessageQueue queue : queues) {
                    pull(consumer, queue, MessageSelector.bySql(expression), found);
                }
                StoreDriver.row(found.toArray());
            }
        } finally {
            consumer.shutdown();
        }
    }

    private static void pull(DefaultMQPullConsumer consumer, MessageQueue queue, MessageSelector selector,
        List<Object> found) throws Exception {
        long offset = consumer.minOffset(queue);
        long max = consumer.maxOffset(queue);
        while (offset < max) {
            PullResult pulled = consumer.pull(queue, selector, offset, PULL_BATCH);
            if (pulled.getMsgFoundList() != null) {
                pulled.getMsgFoundList().forEach(m -> {
                    found.add(m.getQueueId());
                    found.add(m.getQueueOffset());
                });
            }
            if (pulled.getNextBeginOffset() <= offset) {
                throw new IllegalStateException(queue + " ends at " + offset + ": " + pulled);
            }
            offset = pulled.getNextBeginOffset();
        }
    }
}
