package rmqstore.clients;

import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** How fast a server is with real clients: bodies of 1 KiB, four queues. */
final class Measure {
    private static final String BROKER = "broker-a";
    private static final int QUEUES = 4;
    private static final int BODY = 1024;
    private static final int WINDOW = 512;
    private static final int BATCH = 64;
    private static final int PULL = 32;
    private static final int MOST_LATE = 10;

    private final JSONObject request;
    private final Session session;
    private final String topic;
    private final byte[] body = new byte[BODY];

    private Measure(JSONObject request, Session session) {
        this.request = request;
        this.session = session;
        topic = request.getString("topic");
        new Random(1).nextBytes(body);
    }

    static void run(JSONObject request, JSONObject end) throws Exception {
        try (Session session = new Session(request)) {
            new Measure(request, session).run(end);
        }
    }

    private void run(JSONObject end) throws Exception {
        String what = request.getString("what");
        long nanos = (long) (request.getDoubleValue("seconds") * 1e9);
        switch (what) {
            case "sync" -> sync(request.getIntValue("threads"), nanos, end);
            case "async" -> async(nanos, end);
            case "oneway" -> oneway(request.getIntValue("threads"), nanos, end);
            case "batch" -> batch(nanos, end);
            case "pull" -> pull(nanos, end);
            case "push" -> push(request.getIntValue("messages"), end);
            default -> throw new IllegalArgumentException(what);
        }
    }

    private DefaultMQProducer producer() throws Exception {
        DefaultMQProducer producer = session.producer("measure-p-" + System.nanoTime());
        producer.setRetryTimesWhenSendFailed(0);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.send(message(), queue(0)); // the topic is there, the connection open
        return producer;
    }

    private Message message() {
        return new Message(topic, body);
    }

    private MessageQueue queue(long n) {
        return new MessageQueue(topic, BROKER, (int) (n % QUEUES));
    }

    private static void rate(JSONObject end, long messages, long nanos) {
        end.put("messages", messages);
        end.put("rate", messages * 1e9 / nanos);
    }

    private interface Step {
        void run(long n) throws Exception;
    }

    /** Runs a step again and again in so many threads; returns how often, and keeps each one's time. */
    private long repeat(int threads, long nanos, Step step, long[][] times) throws Exception {
        AtomicLong count = new AtomicLong();
        List<Thread> started = new ArrayList<>();
        AtomicInteger failed = new AtomicInteger();
        long until = System.nanoTime() + nanos;
        for (int t = 0; t < threads; t++) {
            int number = t;
            Thread thread = new Thread(() -> {
                long[] mine = new long[1 << 16];
                int n = 0;
                try {
                    while (System.nanoTime() < until) {
                        long began = System.nanoTime();
                        step.run(n * (long) threads + number);
                        if (n == mine.length) {
                            mine = Arrays.copyOf(mine, 2 * n);
                        }
                        mine[n++] = System.nanoTime() - began;
                    }
                } catch (Exception e) {
                    e.printStackTrace();
                    failed.incrementAndGet();
                }
                count.addAndGet(n);
                times[number] = Arrays.copyOf(mine, n);
            });
            thread.start();
            started.add(thread);
        }
        for (Thread thread : started) {
            thread.join();
        }
        if (failed.get() > 0) {
            throw new IllegalStateException(failed + " threads failed");
        }
        return count.get();
    }

    private void sync(int threads, long nanos, JSONObject end) throws Exception {
        DefaultMQProducer producer = producer();
        long[][] times = new long[threads][];
        long began = System.nanoTime();
        long count = repeat(threads, nanos, n -> producer.send(message(), queue(n)), times);
        rate(end, count, System.nanoTime() - began);
        long[] all = Arrays.stream(times).flatMapToLong(Arrays::stream).sorted().toArray();
        end.put("p50_us", all[all.length / 2] / 1000.0);
        end.put("p99_us", all[(int) (all.length * 0.99)] / 1000.0);
    }

    private void async(long nanos, JSONObject end) throws Exception {
        DefaultMQProducer producer = producer();
        Semaphore window = new Semaphore(WINDOW);
        AtomicInteger failed = new AtomicInteger();
        SendCallback callback = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                window.release();
            }

            @Override
            public void onException(Throwable e) {
                failed.incrementAndGet();
                window.release();
            }
        };
        long began = System.nanoTime();
        long n = 0;
        for (; System.nanoTime() - began < nanos; n++) {
            window.acquire();
            producer.send(message(), queue(n), callback, 10_000);
        }
        window.acquire(WINDOW);
        rate(end, n, System.nanoTime() - began);
        end.put("failed", failed.get());
    }

    /** A server that has a flood to get through may answer late: it is asked again. */
    private long stored(DefaultMQProducer producer) throws Exception {
        long sum = 0;
        int late = 0;
        for (int i = 0; i < QUEUES; ) {
            try {
                sum += producer.maxOffset(queue(i));
                i++;
            } catch (MQClientException e) {
                if (++late > MOST_LATE) {
                    throw e;
                }
            }
        }
        return sum;
    }

    /** The rate is of what is stored: until all is, or no more comes. */
    private void oneway(int threads, long nanos, JSONObject end) throws Exception {
        DefaultMQProducer producer = producer();
        Session.sleep(200);
        long before = stored(producer);
        long[][] times = new long[threads][];
        long began = System.nanoTime();
        long count = repeat(threads, nanos, n -> producer.sendOneway(message(), queue(n)), times);
        long after = before;
        long last = System.nanoTime();
        // Until no more came for three seconds.
        while (after - before < count && System.nanoTime() - last < TimeUnit.SECONDS.toNanos(3)) {
            Session.sleep(5);
            long now = stored(producer);
            if (now != after) {
                last = System.nanoTime();
                after = now;
            }
        }
        rate(end, after - before, last - began);
        end.put("lost", count - (after - before));
    }

    private void batch(long nanos, JSONObject end) throws Exception {
        DefaultMQProducer producer = producer();
        long[][] times = new long[1][];
        long began = System.nanoTime();
        long count = repeat(1, nanos, n -> {
            List<Message> batch = new ArrayList<>(BATCH);
            for (int i = 0; i < BATCH; i++) {
                batch.add(message());
            }
            producer.send(batch, queue(n));
        }, times);
        rate(end, count * BATCH, System.nanoTime() - began);
    }

    /** By one thread from one queue after the other, from the start again where all are read. */
    private void pull(long nanos, JSONObject end) throws Exception {
        DefaultMQPullConsumer consumer = session.pull("measure-pull-" + System.nanoTime());
        consumer.fetchSubscribeMessageQueues(topic);
        long[] offsets = new long[QUEUES];
        long count = 0;
        long began = System.nanoTime();
        for (int n = 0; System.nanoTime() - began < nanos; n = (n + 1) % QUEUES) {
            PullResult result = consumer.pull(queue(n), "*", offsets[n], PULL);
            if (result.getPullStatus() == PullStatus.FOUND) {
                count += result.getMsgFoundList().size();
                offsets[n] = result.getNextBeginOffset();
            } else {
                offsets[n] = 0;
            }
        }
        rate(end, count, System.nanoTime() - began);
    }

    private void push(int messages, JSONObject end) throws Exception {
        DefaultMQPushConsumer consumer = session.push("measure-push-" + System.nanoTime(), "measure-push-" + System.nanoTime());
        consumer.setConsumeMessageBatchMaxSize(PULL);
        consumer.subscribe(topic, "*");
        AtomicLong first = new AtomicLong();
        AtomicInteger count = new AtomicInteger();
        CountDownLatch all = new CountDownLatch(1);
        consumer.registerMessageListener((List<MessageExt> got, ConsumeConcurrentlyContext context) -> {
            first.compareAndSet(0, System.nanoTime());
            if (count.addAndGet(got.size()) >= messages) {
                all.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        session.start(consumer);
        if (!all.await(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException("only " + count + " of " + messages);
        }
        rate(end, count.get(), System.nanoTime() - first.get());
    }
}
