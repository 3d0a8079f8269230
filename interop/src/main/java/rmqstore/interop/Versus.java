package rmqstore.interop;

import com.alibaba.fastjson.JSONObject;
import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.*;
import java.util.concurrent.*;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.store.*;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.index.IndexFile;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * Times the real store at the workloads of {@code bench/versus}, one round a request.
 *
 * <p>Requests and answers as {@link StoreDriver}'s. A round answers {@code ns} and {@code cpu_ns} of its work
 * alone, and {@code count}, how many messages or keys that was. What comes from the other side, keys, times and
 * bodies, is handed over or made before.
 */
public final class Versus {
    /** Distinct bodies; more messages take them in turn. */
    private static final int POOL = 4096;
    /** Messages of one client batch. */
    private static final int BATCH = 64;
    private static final InetSocketAddress HOST = new InetSocketAddress(InetAddress.getLoopbackAddress(), 10911);
    private static final OperatingSystemMXBean MACHINE =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private DefaultMessageStore store;
    private BrokerStatsManager stats;
    private final Map<String, List<String>> keys = new HashMap<>();
    private final Map<Integer, List<byte[]>> bodies = new HashMap<>();
    private final Map<String, IndexFile> indexes = new HashMap<>();

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
            case "close" -> close();
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
        long cpu = MACHINE.getProcessCpuTime();
        long began = System.nanoTime();
        long count = work.run();
        end.put("ns", System.nanoTime() - began);
        end.put("cpu_ns", MACHINE.getProcessCpuTime() - cpu);
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

    private void close() {
        store.shutdown();
        stats.shutdown();
        store = null;
    }

    /** Without a pause: what is timed ends when the last message is visible. */
    private void awaitDispatch() {
        while (store.dispatchBehindBytes() > 0) {
            Thread.onSpinWait();
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

    /** Puts client batches that are encoded beforehand; timed until all is visible. */
    private void putBatch(JSONObject request, JSONObject end) throws Exception {
        String topic = request.getString("topic");
        int count = request.getIntValue("count");
        int queues = request.getIntValue("queues");
        List<byte[]> pool = bodies(request.getIntValue("size"));
        List<byte[]> encoded = new ArrayList<>();
        for (int i = 0; i < POOL / BATCH; i++) {
            List<Message> messages = new ArrayList<>();
            for (byte[] body : pool.subList(i * BATCH, (i + 1) * BATCH)) {
                Message message = new Message(topic, body);
                MessageClientIDSetter.setUniqID(message);
                messages.add(message);
            }
            encoded.add(MessageDecoder.encodeMessages(messages));
        }
        measure(end, () -> {
            for (int i = 0; i < count / BATCH; i++) {
                MessageExtBatch batch = new MessageExtBatch();
                batch.setTopic(topic);
                batch.setQueueId(i % queues);
                batch.setBody(encoded.get(i % encoded.size()));
                batch.setBornTimestamp(System.currentTimeMillis());
                batch.setBornHost(HOST);
                batch.setStoreHost(HOST);
                expect(store.putMessages(batch));
            }
            awaitDispatch();
            return (long) count / BATCH * BATCH;
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

    /** Decodes every message of a queue, {@code batch} a call, and uses its fields. */
    private long get(JSONObject request) throws Exception {
        String topic = request.getString("topic");
        int queueId = request.getIntValue("queue_id");
        int batch = request.getIntValue("batch");
        long at = 0, stop = request.getLongValue("count"), used = 0, seen = 0;
        while (at < stop) {
            GetMessageResult got = store.getMessage("versus", topic, queueId, at, batch, null);
            for (ByteBuffer bytes : got.getMessageBufferList()) {
                MessageExt m = MessageDecoder.decode(bytes, true, false);
                used += m.getBody().length + m.getQueueOffset() + m.getStoreTimestamp() + m.getProperties().size();
                seen++;
            }
            at = got.getNextBeginOffset();
            got.release();
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
        for (String key : wanted) {
            QueryMessageResult found = store.queryMessage(topic, key, 32, 0, Long.MAX_VALUE);
            if (found.getMessageBufferList().isEmpty()) {
                throw new IllegalStateException("not found: " + key);
            }
            if (decode) {
                MessageDecoder.decode(found.getMessageBufferList().get(0), true, false);
            }
            found.release();
        }
        return wanted.size();
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

    /** putKey of all the named keys into a fresh file; open for {@code index_select} unless dropped. */
    private void indexPut(JSONObject request, JSONObject end) throws Exception {
        String file = request.getString("file");
        List<String> named = keys.get(request.getString("keys"));
        IndexFile index = new IndexFile(file, 5_000_000, 20_000_000, 0, 0);
        measure(end, () -> {
            long time = 1_700_000_000_000L;
            for (int i = 0; i < named.size(); i++) {
                index.putKey(named.get(i), 250L * i, time + i / 100);
            }
            return named.size();
        });
        indexes.put(file, index);
        drop(request);
    }

    /** Unmaps and removes the file, if this was its last use. */
    private void drop(JSONObject request) {
        if (request.getBooleanValue("drop")) {
            indexes.remove(request.getString("file")).destroy(0);
        }
    }

    private void indexSelect(JSONObject request, JSONObject end) throws Exception {
        IndexFile index = indexes.get(request.getString("file"));
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
        drop(request);
    }
}
