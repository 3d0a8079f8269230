package rmqstore.interop;

import com.alibaba.fastjson.JSONObject;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.store.*;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.index.IndexFile;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * Times the real store at the workloads of {@code bench/versus}, one round a request.
 *
 * <p>Requests and answers as {@link StoreDriver}'s. A round answers {@code ns} of its work alone, and {@code count},
 * how many messages or keys that was. What comes from the other side, keys, times and bodies, is handed over or made
 * before.
 */
public final class Versus {
    /** Distinct bodies; more messages take them in turn. */
    private static final int POOL = 4096;
    /** Messages of one client batch. */
    private static final int BATCH = 64;
    private static final InetSocketAddress HOST = new InetSocketAddress(InetAddress.getLoopbackAddress(), 10911);
    /** Pause between looks at the dispatch. */
    private static final long PAUSE_NS = 200_000;

    private DefaultMessageStore store;
    private BrokerStatsManager stats;
    private IndexFile index;
    private final Map<String, List<String>> keys = new HashMap<>();
    private final Map<Integer, List<byte[]>> bodies = new HashMap<>();

    /** Does the work of a round; answers how many messages or keys that was. */
    private interface Work {
        long run() throws Exception;
    }

    public static void main(String[] args) throws Exception {
        StoreDriver.serve(new Versus()::answer);
    }

    private void answer(JSONObject request, JSONObject end) throws Exception {
        switch (request.getString("op")) {
            case "keys" -> keys.put(request.getString("name"), Files.readAllLines(Path.of(request.getString("file"))));
            case "open" -> measure(end, () -> open(request));
            case "close" -> close(request.getBooleanValue("behind"));
            case "put" -> put(request, end);
            case "put_batch" -> putBatch(request, end);
            case "visible" -> visible(request, end);
            case "get" -> measure(end, () -> get(request));
            case "query" -> measure(end, () -> query(request));
            case "offset_at" -> offsetAt(request, end);
            case "index_put" -> indexPut(request, end);
            case "index_select" -> indexSelect(request, end);
            case "exit" -> end.put("exit", 0);
            default -> throw new IllegalArgumentException("unknown op: " + request.getString("op"));
        }
    }

    private static void measure(JSONObject end, Work work) throws Exception {
        long began = System.nanoTime();
        long count = work.run();
        end.put("ns", System.nanoTime() - began);
        end.put("count", count);
    }

    // ---- the store

    /** Opens a directory until queues and index have every record of the log. */
    private long open(JSONObject request) throws Exception {
        String root = request.getString("dir");
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root);
        config.setStorePathCommitLog(root + "/commitlog");
        config.setFileReservedTime(24 * 365 * 20);
        config.setCleanFileForciblyEnable(false);
        config.setOsPageCacheBusyTimeOutMills(60_000);
        RealParts.configure(config, request.getJSONObject("config"));
        stats = new BrokerStatsManager("versus", false);
        store = new DefaultMessageStore(config, stats, null, new BrokerConfig());
        RealParts.listenOnLoopback(store);
        if (!store.load()) {
            throw new IllegalStateException("the real store does not load " + root);
        }
        store.start();
        awaitDispatch();
        return 1;
    }

    /** A shutdown sleeps for a second: of a store that nobody opens again it may go on behind other work. */
    private void close(boolean behind) throws Exception {
        DefaultMessageStore old = store;
        BrokerStatsManager oldStats = stats;
        Thread closing = new Thread(() -> {
            old.shutdown();
            oldStats.shutdown();
        });
        closing.start();
        if (!behind) {
            closing.join();
        }
        store = null;
    }

    /** Waits until the last message is visible; a waiter that spins takes a core from the dispatch. */
    private void awaitDispatch() {
        while (store.dispatchBehindBytes() > 0) {
            LockSupport.parkNanos(PAUSE_NS);
        }
    }

    // ---- writing

    private List<byte[]> bodies(int size) {
        return bodies.computeIfAbsent(size, s -> {
            Random random = new Random(s);
            List<byte[]> made = new ArrayList<>();
            for (int i = 0; i < POOL; i++) {
                byte[] body = new byte[s];
                random.nextBytes(body);
                made.add(body);
            }
            return made;
        });
    }

    private static MessageExtBrokerInner message(String topic, int queueId, byte[] body, String key, String tag) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic(topic);
        message.setQueueId(queueId);
        message.setBody(body);
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(HOST);
        message.setStoreHost(HOST);
        MessageClientIDSetter.setUniqID(message);
        if (key != null) {
            message.setKeys(key);
        }
        if (tag != null) {
            message.setTags(tag);
        }
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        return message;
    }

    private static void expect(PutMessageResult put) {
        if (put.getPutMessageStatus() != PutMessageStatus.PUT_OK) {
            throw new IllegalStateException(put.getPutMessageStatus().name());
        }
    }

    /** Puts {@code count} messages by {@code threads}, a call each, over {@code queues}; keys if named. */
    private void put(JSONObject request, JSONObject end) throws Exception {
        String topic = request.getString("topic");
        int queues = request.getIntValue("queues");
        int count = request.getIntValue("count");
        int threads = Math.max(1, request.getIntValue("threads"));
        List<byte[]> pool = bodies(request.getIntValue("size"));
        List<String> named = keys.get(request.getString("keys"));
        ExecutorService writers = Executors.newFixedThreadPool(threads);
        try {
            measure(end, () -> {
                List<Future<?>> parts = new ArrayList<>();
                for (int t = 0; t < threads; t++) {
                    int first = t;
                    parts.add(writers.submit(() -> {
                        for (int i = first; i < count; i += threads) {
                            String key = named == null ? null : named.get(i);
                            String tag = named == null ? null : "Tag" + (char) ('A' + i % 5);
                            expect(store.putMessage(message(topic, i % queues, pool.get(i % POOL), key, tag)));
                        }
                    }));
                }
                for (Future<?> part : parts) {
                    part.get();
                }
                return count;
            });
        } finally {
            writers.shutdown();
        }
        awaitDispatch();
    }

    /** Puts client batches, encoded for the store as a client does; timed until all is visible. */
    private void putBatch(JSONObject request, JSONObject end) throws Exception {
        String topic = request.getString("topic");
        int count = request.getIntValue("count");
        int queues = request.getIntValue("queues");
        List<byte[]> pool = bodies(request.getIntValue("size"));
        measure(end, () -> {
            for (int i = 0; i < count; i += BATCH) {
                List<Message> messages = new ArrayList<>();
                for (int j = i; j < Math.min(count, i + BATCH); j++) {
                    Message message = new Message(topic, pool.get(j % POOL));
                    MessageClientIDSetter.setUniqID(message);
                    messages.add(message);
                }
                MessageExtBatch batch = new MessageExtBatch();
                batch.setTopic(topic);
                batch.setQueueId(i / BATCH % queues);
                batch.setBody(MessageDecoder.encodeMessages(messages));
                batch.setBornTimestamp(System.currentTimeMillis());
                batch.setBornHost(HOST);
                batch.setStoreHost(HOST);
                expect(store.putMessages(batch));
            }
            awaitDispatch();
            return count;
        });
    }

    /** Each message's time from its put until its queue has it: {@code median_ns} and {@code p99_ns}. */
    private void visible(JSONObject request, JSONObject end) throws Exception {
        String topic = request.getString("topic");
        List<byte[]> pool = bodies(request.getIntValue("size"));
        long[] took = new long[request.getIntValue("count")];
        measure(end, () -> {
            for (int i = 0; i < took.length; i++) {
                long began = System.nanoTime();
                PutMessageResult put = store.putMessage(message(topic, 0, pool.get(i % POOL), null, null));
                expect(put);
                while (store.getMaxOffsetInQueue(topic, 0) <= put.getAppendMessageResult().getLogicsOffset()) {
                    Thread.onSpinWait();
                }
                took[i] = System.nanoTime() - began;
            }
            return took.length;
        });
        Arrays.sort(took);
        end.put("median_ns", took[took.length / 2]);
        end.put("p99_ns", took[took.length * 99 / 100]);
    }

    // ---- reading

    /** Decodes {@code count} messages of each queue or all, {@code batch} a call, and uses their fields. */
    private long get(JSONObject request) throws Exception {
        String topic = request.getString("topic");
        int queues = request.getIntValue("queues");
        int batch = request.getIntValue("batch");
        boolean body = request.getBooleanValue("body");
        long used = 0, seen = 0;
        for (int queueId = 0; queueId < queues; queueId++) {
            long at = 0, stop = Math.min(request.getLongValue("count"), store.getMaxOffsetInQueue(topic, queueId));
            while (at < stop) {
                GetMessageResult got = store.getMessage("versus", topic, queueId, at, batch, null);
                for (ByteBuffer bytes : got.getMessageBufferList()) {
                    MessageExt m = MessageDecoder.decode(bytes, body, false);
                    used += m.getQueueOffset() + m.getStoreTimestamp() + m.getProperties().size();
                    used += body ? m.getBody().length : 0;
                    seen++;
                }
                at = got.getNextBeginOffset();
                got.release();
            }
        }
        if (used == 0) {
            throw new IllegalStateException("nothing was read");
        }
        return seen;
    }

    /** One query for each of the named keys; each is found. With {@code decode} its message is decoded. */
    private long query(JSONObject request) throws Exception {
        String topic = request.getString("topic");
        boolean decode = request.getBooleanValue("decode");
        List<String> wanted = keys.get(request.getString("keys"));
        long used = 0;
        for (String key : wanted) {
            QueryMessageResult found = store.queryMessage(topic, key, 32, 0, Long.MAX_VALUE);
            if (found.getMessageBufferList().isEmpty()) {
                throw new IllegalStateException("not found: " + key);
            }
            if (decode) {
                MessageExt m = MessageDecoder.decode(found.getMessageBufferList().get(0), true, false);
                used += m.getBody().length + m.getQueueOffset() + m.getStoreTimestamp() + m.getProperties().size();
            }
            found.release();
        }
        return used < 0 ? 0 : wanted.size();
    }

    private void offsetAt(JSONObject request, JSONObject end) throws Exception {
        String topic = request.getString("topic");
        int queueId = request.getIntValue("queue_id");
        long[] times = request.getJSONArray("times").stream().mapToLong(t -> ((Number) t).longValue()).toArray();
        measure(end, () -> {
            long sum = 0;
            for (long time : times) {
                sum += store.getOffsetInQueueByTime(topic, queueId, time);
            }
            return sum < 0 ? 0 : times.length;
        });
    }

    // ---- the index file by itself

    /** putKey of all the named keys into a fresh file, which stays open for {@code index_select}. */
    private void indexPut(JSONObject request, JSONObject end) throws Exception {
        List<String> named = keys.get(request.getString("keys"));
        index = new IndexFile(request.getString("file"), 5_000_000, 20_000_000, 0, 0);
        measure(end, () -> {
            long time = 1_700_000_000_000L;
            for (int i = 0; i < named.size(); i++) {
                index.putKey(named.get(i), 250L * i, time + i / 100);
            }
            return named.size();
        });
    }

    /** Finds each of the named keys; then unmaps and removes the file. */
    private void indexSelect(JSONObject request, JSONObject end) throws Exception {
        List<String> wanted = keys.get(request.getString("keys"));
        measure(end, () -> {
            List<Long> found = new ArrayList<>();
            for (String key : wanted) {
                found.clear();
                index.selectPhyOffset(found, key, 32, 0, Long.MAX_VALUE, false);
                if (found.isEmpty()) {
                    throw new IllegalStateException("not found: " + key);
                }
            }
            return wanted.size();
        });
        index.destroy(0);
    }
}
