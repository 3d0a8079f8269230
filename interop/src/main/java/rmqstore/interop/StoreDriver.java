package rmqstore.interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.*;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.locks.ReentrantLock;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.filter.FilterAPI;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.store.*;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.index.IndexService;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * Lets another process use the real DefaultMessageStore over standard input and output.
 *
 * <p>A request is one JSON object a line, with {@code op} and, if wanted, {@code timeout} in seconds.
 * The answer is any number of JSON arrays, a row a line, and then one JSON object: {@code {"ok":true,...}}
 * or {@code {"ok":false,"error":...}}. A request that takes longer than its timeout is answered with an
 * error and ends the process, for the store's state is unknown then; so does the end of standard input.
 * Byte strings are base64. One store is open at a time; after {@code shutdown} another can be opened.
 */
public final class StoreDriver {
    private static final PrintStream OUT =
        new PrintStream(new BufferedOutputStream(new FileOutputStream(FileDescriptor.out), 1 << 16), false,
            StandardCharsets.UTF_8);
    private static final ReentrantLock OUT_LOCK = new ReentrantLock();
    private static final Base64.Encoder BASE64 = Base64.getEncoder();
    private static final int DEFAULT_TIMEOUT_SECONDS = 60;
    /** Exit codes: the end of input, a request that ran out of time, and what {@code halt} leaves. */
    private static final int EXIT_INPUT_ENDED = 0, EXIT_TIMEOUT = 3, EXIT_HALT = 137;

    private DefaultMessageStore store;
    private BrokerStatsManager stats;

    /** The real store, but that delayed messages are delivered only if asked for. */
    private static final class Store extends DefaultMessageStore {
        private final boolean deliverDelayed;

        Store(MessageStoreConfig config, BrokerStatsManager stats, boolean deliverDelayed) throws Exception {
            super(config, stats, null, new BrokerConfig());
            this.deliverDelayed = deliverDelayed;
        }

        @Override
        public void handleScheduleMessageService(BrokerRole role) {
            if (deliverDelayed) {
                super.handleScheduleMessageService(role);
            }
        }
    }

    /** Answers one request: rows by {@link #row}, and into {@code end} what its last line has. */
    interface Handler {
        void answer(JSONObject request, JSONObject end) throws Exception;
    }

    public static void main(String[] args) throws Exception {
        serve(new StoreDriver()::answer);
    }

    /** Reads requests until standard input ends, or a handler asks for the end by {@code exit}. */
    static void serve(Handler handler) throws Exception {
        ExecutorService worker = Executors.newSingleThreadExecutor();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8), 1 << 20);
        System.setOut(System.err); // nothing but answers may reach the real standard output
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JSONObject end = new JSONObject(true);
            try {
                JSONObject request = JSON.parseObject(line);
                Integer seconds = request.getInteger("timeout");
                Future<?> done = worker.submit(() -> {
                    handler.answer(request, end);
                    return null;
                });
                try {
                    done.get(seconds == null ? DEFAULT_TIMEOUT_SECONDS : seconds, TimeUnit.SECONDS);
                    end.put("ok", true);
                } catch (ExecutionException e) {
                    fail(end, e.getCause());
                } catch (TimeoutException e) {
                    for (Map.Entry<Thread, StackTraceElement[]> t : Thread.getAllStackTraces().entrySet()) {
                        System.err.println(t.getKey() + " " + Arrays.toString(t.getValue()));
                    }
                    if (OUT_LOCK.tryLock(1, TimeUnit.SECONDS)) { // not held by a row that nobody reads
                        OUT.println("{\"ok\":false,\"error\":\"timeout\"}");
                        OUT.flush();
                    }
                    Runtime.getRuntime().halt(EXIT_TIMEOUT);
                }
            } catch (Exception e) {
                fail(end, e);
            }
            write(end);
            OUT.flush();
            if (end.containsKey("exit")) {
                Runtime.getRuntime().halt(end.getIntValue("exit"));
            }
        }
        Runtime.getRuntime().halt(EXIT_INPUT_ENDED);
    }

    private static void fail(JSONObject end, Throwable e) {
        end.clear();
        end.put("ok", false);
        end.put("error", e.toString());
    }

    /** Writes one line; ASCII only, so that no reader can split it elsewhere. */
    private static void write(Object value) {
        String line = JSON.toJSONString(value, SerializerFeature.BrowserCompatible,
            SerializerFeature.DisableCircularReferenceDetect, SerializerFeature.WriteMapNullValue);
        OUT_LOCK.lock();
        try {
            OUT.println(line);
        } finally {
            OUT_LOCK.unlock();
        }
    }

    static void row(Object... values) {
        write(values);
    }

    void answer(JSONObject request, JSONObject end) throws Exception {
        String op = request.getString("op");
        switch (op) {
            case "names" -> StoreMethods.names();
            case "ping" -> end.put("pid", ProcessHandle.current().pid());
            case "open" -> open(request, end);
            case "bloom" -> ExtParts.bloom(request);
            case "deflate" -> ClientParts.deflate(request);
            case "inflate" -> ClientParts.inflate(request);
            case "traces" -> ClientParts.traces(request);
            case "halt" -> end.put("exit", EXIT_HALT);
            case "exit" -> {
                if (store != null) {
                    shutdown(end);
                }
                end.put("exit", 0);
            }
            default -> {
                if (store == null) {
                    throw new IllegalStateException("no store is open");
                }
                switch (op) {
                    case "info" -> info(end);
                    case "dump" -> dump(request, end);
                    case "append" -> append(request, end);
                    case "batch" -> batch(request, end);
                    case "query" -> query(request, end);
                    case "locate" -> locate(request);
                    case "records" -> records(request);
                    case "get" -> get(request, end);
                    case "time" -> time(request);
                    case "minmax" -> minmax(end);
                    case "ext" -> ExtParts.units(store);
                    case "call" -> StoreMethods.call(store, request);
                    case "clean" -> StoreMethods.clean(store, request, end);
                    case "flush" -> {
                        awaitDispatch();
                        end.put("flushed", store.flush());
                    }
                    case "shutdown" -> shutdown(end);
                    default -> throw new IllegalArgumentException("unknown op: " + op);
                }
            }
        }
    }

    // ---- open and close

    /** Answers for a store that someone else opened and will close. */
    StoreDriver use(DefaultMessageStore opened) {
        store = opened;
        return this;
    }

    private void open(JSONObject request, JSONObject end) throws Exception {
        if (store != null) {
            throw new IllegalStateException("a store is open already");
        }
        String root = request.getString("dir");
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root);
        config.setStorePathCommitLog(root + "/commitlog");
        config.setFileReservedTime(24 * 365 * 20); // a test's old files are not to be expired
        config.setCleanFileForciblyEnable(false);
        JSONObject given = request.getJSONObject("config");
        RealParts.configure(config, given);
        boolean clean = !Files.exists(Path.of(root, "abort"));
        BrokerStatsManager opened = new BrokerStatsManager("interop", false);
        Store candidate = new Store(config, opened, request.getBooleanValue("deliver_delayed"));
        RealParts.listenOnLoopback(candidate);
        end.put("clean", clean);
        boolean loaded = candidate.load();
        end.put("load", loaded);
        end.put("start", false);
        if (!loaded) {
            candidate.shutdown();
            opened.shutdown();
            return;
        }
        candidate.start();
        store = candidate;
        stats = opened;
        awaitDispatch();
        end.put("start", true);
        info(end);
    }

    private void shutdown(JSONObject end) {
        DefaultMessageStore closing = store;
        store = null;
        closing.shutdown();
        stats.shutdown();
        end.put("clean", !Files.exists(Path.of(closing.getMessageStoreConfig().getStorePathRootDir(), "abort")));
    }

    private void info(JSONObject end) {
        end.put("min_phy_offset", store.getMinPhyOffset());
        end.put("max_phy_offset", store.getMaxPhyOffset());
        end.put("behind", store.dispatchBehindBytes());
        end.put("writeable", store.getRunningFlags().isWriteable());
    }

    /** Waits until queues and index have every record of the log; the request's timeout bounds it. */
    private void awaitDispatch() throws InterruptedException {
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(1);
        }
    }

    // ---- reading

    private static String host(SocketAddress address) {
        InetSocketAddress a = (InetSocketAddress) address;
        String ip = a.getAddress().getHostAddress();
        return (ip.indexOf(':') < 0 ? ip : "[" + ip + "]") + ":" + a.getPort();
    }

    /** A record's fields under the names that rmqstore's Message has; null if it does not decode. */
    private static Map<String, Object> record(ByteBuffer bytes, JSONObject request) throws Exception {
        byte[] raw = new byte[bytes.remaining()];
        bytes.duplicate().get(raw);
        MessageExt m = MessageDecoder.decode(bytes, true, false);
        if (m == null) {
            return null;
        }
        byte[] body = m.getBody() == null ? new byte[0] : m.getBody();
        Map<String, Object> r = new LinkedHashMap<>();
        r.put("topic", m.getTopic());
        r.put("queue_id", m.getQueueId());
        r.put("queue_offset", m.getQueueOffset());
        r.put("physical_offset", m.getCommitLogOffset());
        r.put("store_size", m.getStoreSize());
        r.put("flag", m.getFlag());
        r.put("sys_flag", m.getSysFlag());
        r.put("born_timestamp", m.getBornTimestamp());
        r.put("store_timestamp", m.getStoreTimestamp());
        r.put("born_host", host(m.getBornHost()));
        r.put("store_host", host(m.getStoreHost()));
        r.put("reconsume_times", m.getReconsumeTimes());
        r.put("prepared_transaction_offset", m.getPreparedTransactionOffset());
        r.put("body_crc", m.getBodyCRC());
        r.put("msg_id", m.getMsgId());
        r.put("body_sha1", BASE64.encodeToString(MessageDigest.getInstance("SHA-1").digest(body)));
        r.put("properties", m.getProperties() == null ? Map.of() : new TreeMap<>(m.getProperties()));
        if (request.getBooleanValue("body")) {
            r.put("body", BASE64.encodeToString(body));
        }
        if (request.getBooleanValue("raw")) {
            r.put("raw", BASE64.encodeToString(raw));
        }
        return r;
    }

    private List<ConsumeQueue> queues() {
        List<ConsumeQueue> all = new ArrayList<>();
        for (Map<Integer, ConsumeQueue> queues : new TreeMap<>(store.getConsumeQueueTable()).values()) {
            all.addAll(new TreeMap<>(queues).values());
        }
        return all;
    }

    private static void rows(List<ByteBuffer> records, JSONObject request) throws Exception {
        for (ByteBuffer bytes : records) {
            row(record(bytes, request));
        }
    }

    /** Rows: topic, queue id, queue offset, physical offset, size, tags code, record or null. */
    private void dump(JSONObject request, JSONObject end) throws Exception {
        awaitDispatch();
        String topic = request.getString("topic");
        long count = 0;
        for (ConsumeQueue queue : queues()) {
            if (topic != null && !topic.equals(queue.getTopic())) {
                continue;
            }
            long max = queue.getMaxOffsetInQueue();
            for (long at = queue.getMinOffsetInQueue(); at < max; ) {
                SelectMappedBufferResult units = queue.getIndexBuffer(at);
                if (units == null) {
                    throw new IllegalStateException(
                        "no unit " + at + " in " + queue.getTopic() + "/" + queue.getQueueId());
                }
                try {
                    ByteBuffer unit = units.getByteBuffer();
                    for (; unit.remaining() >= ConsumeQueue.CQ_STORE_UNIT_SIZE && at < max; at++, count++) {
                        long offset = unit.getLong();
                        int size = unit.getInt();
                        long tagsCode = unit.getLong();
                        SelectMappedBufferResult found = store.getCommitLog().getMessage(offset, size);
                        Object fields = null;
                        if (found != null) {
                            fields = record(found.getByteBuffer(), request);
                            found.release();
                        }
                        row(queue.getTopic(), queue.getQueueId(), at, offset, size, tagsCode, fields);
                    }
                } finally {
                    units.release();
                }
            }
        }
        end.put("count", count);
    }

    /** Rows: for each physical offset the record, and the bytes that MessageDecoder.encode makes of it again. */
    private void records(JSONObject request) throws Exception {
        for (Object offset : request.getJSONArray("offsets")) {
            SelectMappedBufferResult found = store.selectOneMessageByOffset(((Number) offset).longValue());
            try {
                byte[] again = EncodedAgain.bytes(found.getByteBuffer().duplicate());
                row(record(found.getByteBuffer(), request), BASE64.encodeToString(again));
            } finally {
                found.release();
            }
        }
    }

    /** Rows: the records in the order of the store's own answer. */
    private void query(JSONObject request, JSONObject end) throws Exception {
        awaitDispatch();
        QueryMessageResult found = store.queryMessage(request.getString("topic"), request.getString("key"),
            request.getIntValue("max"), request.getLongValue("begin"), request.getLongValue("end"));
        rows(found.getMessageBufferList(), request);
        found.release();
        end.put("index_last_update_phyoffset", found.getIndexLastUpdatePhyoffset());
    }

    /** Rows: for each [topic, key] the physical offsets that the index gives, newest first. */
    private void locate(JSONObject request) throws Exception {
        awaitDispatch();
        IndexService index = (IndexService) RealParts.field(store, "indexService");
        for (Object pair : request.getJSONArray("keys")) {
            JSONArray key = (JSONArray) pair;
            row(index.queryOffset(key.getString(0), key.getString(1), request.getIntValue("max"),
                request.getLongValue("begin"), request.getLongValue("end")).getPhyOffsets().toArray());
        }
    }

    private void get(JSONObject request, JSONObject end) throws Exception {
        awaitDispatch();
        String topic = request.getString("topic");
        String tags = request.getString("tags");
        MessageFilter filter =
            tags == null ? null : new DefaultMessageFilter(FilterAPI.buildSubscriptionData(topic, tags));
        GetMessageResult got = store.getMessage("interop", topic, request.getIntValue("queue_id"),
            request.getLongValue("offset"), request.getIntValue("max"), filter);
        if (got == null) {
            throw new IllegalStateException("getMessage answered null");
        }
        rows(got.getMessageBufferList(), request);
        end.put("status", got.getStatus().name());
        end.put("next_offset", got.getNextBeginOffset());
        end.put("min_offset", got.getMinOffset());
        end.put("max_offset", got.getMaxOffset());
        got.release();
    }

    /** Rows: the queue offset for each of the times. */
    private void time(JSONObject request) throws Exception {
        awaitDispatch();
        JSONArray times = request.getJSONArray("times");
        for (int i = 0; i < times.size(); i++) {
            row(store.getOffsetInQueueByTime(
                request.getString("topic"), request.getIntValue("queue_id"), times.getLongValue(i)));
        }
    }

    /** Rows: topic, queue id, min offset, max offset of every queue. */
    private void minmax(JSONObject end) throws Exception {
        awaitDispatch();
        for (ConsumeQueue queue : queues()) {
            row(queue.getTopic(), queue.getQueueId(), queue.getMinOffsetInQueue(), queue.getMaxOffsetInQueue());
        }
        info(end);
    }

    // ---- writing

    private static InetSocketAddress address(String text) throws Exception {
        if (text == null) {
            text = "127.0.0.1:10911";
        }
        int colon = text.lastIndexOf(':');
        String ip = text.substring(0, colon);
        if (!ip.matches("\\[[0-9a-fA-F:.]+]|[0-9.]+")) {
            throw new IllegalArgumentException("not ip:port: " + text);
        }
        return new InetSocketAddress(InetAddress.getByName(ip), Integer.parseInt(text.substring(colon + 1)));
    }

    private static Map<String, String> properties(JSONObject m) {
        Map<String, String> properties = new LinkedHashMap<>();
        JSONArray pairs = m.getJSONArray("properties");
        for (Object pair : pairs == null ? List.of() : pairs) {
            properties.put(((JSONArray) pair).getString(0), ((JSONArray) pair).getString(1));
        }
        return properties;
    }

    private static void common(MessageExt to, JSONObject m) throws Exception {
        to.setTopic(m.getString("topic"));
        to.setQueueId(m.getIntValue("queue_id"));
        to.setFlag(m.getIntValue("flag"));
        to.setSysFlag(m.getIntValue("sys_flag"));
        Long born = m.getLong("born_timestamp");
        to.setBornTimestamp(born == null ? System.currentTimeMillis() : born);
        to.setBornHost(address(m.getString("born_host")));
        to.setStoreHost(address(m.getString("store_host")));
        to.setReconsumeTimes(m.getIntValue("reconsume_times"));
        to.setPreparedTransactionOffset(m.getLongValue("prepared_transaction_offset"));
    }

    private static void result(PutMessageResult put) {
        AppendMessageResult at = put.getAppendMessageResult();
        String status = put.getPutMessageStatus().name();
        if (at == null) {
            row(status, null, null, null, null, null);
        } else {
            row(status, at.getStatus().name(), at.getWroteOffset(), at.getLogicsOffset(), at.getWroteBytes(),
                at.getMsgId());
        }
    }

    /** Rows: put status, append status, physical offset, queue offset, bytes, message id(s). */
    private void append(JSONObject request, JSONObject end) throws Exception {
        JSONArray messages = request.getJSONArray("messages");
        for (int i = 0; i < messages.size(); i++) {
            JSONObject m = messages.getJSONObject(i);
            MessageExtBrokerInner message = new MessageExtBrokerInner();
            common(message, m);
            message.setBody(Base64.getDecoder().decode(m.getString("body")));
            MessageAccessor.setProperties(message, properties(m));
            if (m.getIntValue("delay_level") != 0) {
                message.setDelayTimeLevel(m.getIntValue("delay_level"));
            }
            message.setPropertiesString(m.containsKey("properties_string") ? m.getString("properties_string")
                : MessageDecoder.messageProperties2String(message.getProperties()));
            result(store.putMessage(message));
        }
        if (request.get("wait") == null || request.getBooleanValue("wait")) {
            awaitDispatch();
        }
        info(end);
    }

    /** One row as {@link #append}'s: a batch has one result, its first queue offset and all its ids. */
    private void batch(JSONObject request, JSONObject end) throws Exception {
        MessageExtBatch batch = new MessageExtBatch();
        common(batch, request);
        MessageAccessor.setProperties(batch, properties(request));
        List<Message> messages = new ArrayList<>();
        for (Object each : request.getJSONArray("messages")) {
            JSONObject m = (JSONObject) each;
            Message message = new Message(request.getString("topic"), Base64.getDecoder().decode(m.getString("body")));
            message.setFlag(m.getIntValue("flag"));
            MessageAccessor.setProperties(message, properties(m));
            messages.add(message);
        }
        batch.setBody(MessageDecoder.encodeMessages(messages));
        result(store.putMessages(batch));
        awaitDispatch();
        info(end);
    }
}
