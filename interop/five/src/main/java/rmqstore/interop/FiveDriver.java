package rmqstore.interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.*;
import java.lang.reflect.Field;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.*;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.*;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.compression.CompressorFactory;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.store.*;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.ha.DefaultHAService;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;
import org.apache.rocketmq.store.queue.CqUnit;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * Lets another process use the real store of RocketMQ 5.3.3 over standard input and output.
 *
 * <p>As the driver of 4.9.3: a request is one JSON object a line, the answer any number of JSON arrays, a
 * row a line, and then one JSON object. The end of standard input ends the process; so does the caller when
 * an answer takes too long.
 */
public final class FiveDriver {
    private static final PrintStream OUT =
        new PrintStream(new BufferedOutputStream(new FileOutputStream(FileDescriptor.out), 1 << 16), false,
            StandardCharsets.UTF_8);
    private static final Base64.Encoder BASE64 = Base64.getEncoder();
    private static final int EXIT_INPUT_ENDED = 0;
    private static final int COMPRESSION_LEVEL = 5;

    private DefaultMessageStore store;
    private BrokerStatsManager stats;

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8), 1 << 20);
        System.setOut(System.err); // nothing but answers may reach the real standard output
        FiveDriver driver = new FiveDriver();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JSONObject end = new JSONObject(true);
            try {
                driver.answer(JSON.parseObject(line), end);
                end.put("ok", true);
            } catch (Throwable e) {
                e.printStackTrace();
                end.clear();
                end.put("ok", false);
                end.put("error", e.toString());
            }
            row(end);
            OUT.flush();
        }
        Runtime.getRuntime().halt(EXIT_INPUT_ENDED);
    }

    private static void row(Object value) {
        OUT.println(JSON.toJSONString(value, SerializerFeature.BrowserCompatible,
            SerializerFeature.DisableCircularReferenceDetect, SerializerFeature.WriteMapNullValue));
    }

    private void answer(JSONObject request, JSONObject end) throws Exception {
        String op = request.getString("op");
        if (op.equals("open")) {
            open(request, end);
            return;
        }
        if (store == null) {
            throw new IllegalStateException("no store is open");
        }
        switch (op) {
            case "info" -> info(end);
            case "append" -> append(request, end);
            case "dump" -> dump(request, end);
            case "query" -> query(request);
            case "flush" -> {
                awaitDispatch();
                end.put("flushed", store.flush());
            }
            case "shutdown" -> {
                store.shutdown();
                stats.shutdown();
                end.put("clean", !Files.exists(
                    Path.of(store.getMessageStoreConfig().getStorePathRootDir(), "abort")));
                store = null;
            }
            default -> throw new IllegalArgumentException("unknown op: " + op);
        }
    }

    // ---- open

    /** A store of files, or of RocksDB where the configuration says so; {@code batch_topics} have batch queues. */
    private void open(JSONObject request, JSONObject end) throws Exception {
        if (store != null) {
            throw new IllegalStateException("a store is open already");
        }
        String root = request.getString("dir");
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root);
        config.setFileReservedTime(24 * 365 * 20); // a test's old files are not to be expired
        config.setCleanFileForciblyEnable(false);
        config.setHaListenPort(0);
        configure(config, request.getJSONObject("config"));
        boolean clean = !Files.exists(Path.of(root, "abort"));
        ConcurrentMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
        JSONArray batched = request.getJSONArray("batch_topics");
        for (Object name : batched == null ? List.of() : batched) {
            TopicConfig topic = new TopicConfig((String) name, 4, 4);
            topic.getAttributes().put("queue.type", "BatchCQ");
            topics.put((String) name, topic);
        }
        BrokerConfig broker = new BrokerConfig();
        stats = new BrokerStatsManager("interop", false);
        DefaultMessageStore opened = config.isEnableRocksDBStore()
            ? new RocksDBMessageStore(config, stats, null, broker, topics)
            : new DefaultMessageStore(config, stats, null, broker, topics);
        set(opened, "haService", new LoopbackReplication());
        boolean loaded = opened.load();
        end.put("clean", clean);
        end.put("load", loaded);
        end.put("start", loaded);
        if (!loaded) {
            opened.shutdown();
            stats.shutdown();
            return;
        }
        opened.start();
        store = opened;
        awaitDispatch();
        info(end);
    }

    /** Sets what is given by its RocketMQ name; what cannot be set is an error. */
    private static void configure(MessageStoreConfig config, JSONObject given) {
        Properties settings = new Properties();
        if (given != null) {
            given.forEach((name, value) -> settings.setProperty(name, value.toString()));
        }
        MixAll.properties2Object(settings, config); // drops silently what it cannot set
        Properties taken = MixAll.object2Properties(config);
        for (String name : settings.stringPropertyNames()) {
            if (!settings.getProperty(name).equals(taken.getProperty(name))) {
                throw new IllegalArgumentException("not taken: " + name + "=" + settings.getProperty(name));
            }
        }
    }

    /** Listens on a free loopback port; the release can only listen on all addresses. */
    private static final class LoopbackReplication extends DefaultHAService {
        @Override
        public void init(DefaultMessageStore opened) throws IOException {
            super.init(opened);
            try {
                InetSocketAddress address = new InetSocketAddress(InetAddress.getLoopbackAddress(), 0);
                set(acceptSocketService, "socketAddressListen", address);
            } catch (ReflectiveOperationException e) {
                throw new IOException(e);
            }
        }
    }

    private static void set(Object of, String name, Object value) throws ReflectiveOperationException {
        for (Class<?> c = of.getClass(); c != null; c = c.getSuperclass()) {
            for (Field f : c.getDeclaredFields()) {
                if (f.getName().equals(name)) {
                    f.setAccessible(true);
                    f.set(of, value);
                    return;
                }
            }
        }
        throw new NoSuchFieldException(name);
    }

    private void info(JSONObject end) {
        end.put("min_phy_offset", store.getMinPhyOffset());
        end.put("max_phy_offset", store.getMaxPhyOffset());
        end.put("behind", store.dispatchBehindBytes());
    }

    /** Waits until queues and index have every record of the log; the caller's patience bounds it. */
    private void awaitDispatch() throws InterruptedException {
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(1);
        }
    }

    // ---- writing

    private static InetSocketAddress address(String text) throws Exception {
        int colon = text.lastIndexOf(':');
        return new InetSocketAddress(
            InetAddress.getByName(text.substring(0, colon)), Integer.parseInt(text.substring(colon + 1)));
    }

    /** Rows: put status, append status, physical offset, queue offset, bytes, message id. */
    private void append(JSONObject request, JSONObject end) throws Exception {
        for (Object each : request.getJSONArray("messages")) {
            JSONObject m = (JSONObject) each;
            MessageExtBrokerInner message = new MessageExtBrokerInner();
            message.setTopic(m.getString("topic"));
            message.setQueueId(m.getIntValue("queue_id"));
            message.setFlag(m.getIntValue("flag"));
            message.setBornTimestamp(System.currentTimeMillis());
            message.setBornHost(address(m.getOrDefault("born_host", "127.0.0.1:10911").toString()));
            message.setStoreHost(address(m.getOrDefault("store_host", "127.0.0.1:10911").toString()));
            int sysFlag = m.getIntValue("sys_flag");
            byte[] body = Base64.getDecoder().decode(m.getString("body"));
            if (m.containsKey("compression")) {
                CompressionType type = CompressionType.of(m.getString("compression"));
                body = CompressorFactory.getCompressor(type).compress(body, COMPRESSION_LEVEL);
                sysFlag |= MessageSysFlag.COMPRESSED_FLAG | type.getCompressionFlag();
            }
            message.setSysFlag(sysFlag);
            message.setBody(body);
            Map<String, String> properties = new LinkedHashMap<>();
            for (Object pair : m.getJSONArray("properties")) {
                properties.put(((JSONArray) pair).getString(0), ((JSONArray) pair).getString(1));
            }
            MessageAccessor.setProperties(message, properties);
            message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
            PutMessageResult put = store.putMessage(message);
            AppendMessageResult at = put.getAppendMessageResult();
            String status = put.getPutMessageStatus().name();
            row(at == null ? Arrays.asList(status, null, null, null, null, null)
                : Arrays.asList(status, at.getStatus().name(), at.getWroteOffset(), at.getLogicsOffset(),
                    at.getWroteBytes(), at.getMsgId()));
        }
        awaitDispatch();
        info(end);
    }

    // ---- reading

    private static String host(SocketAddress address) {
        InetSocketAddress a = (InetSocketAddress) address;
        String ip = a.getAddress().getHostAddress();
        return (ip.indexOf(':') < 0 ? ip : "[" + ip + "]") + ":" + a.getPort();
    }

    /** A record's fields under the names that rmqstore's Message has, the body's inflated; null: no record. */
    private static Map<String, Object> record(ByteBuffer bytes) throws Exception {
        MessageExt stored = MessageDecoder.decode(bytes.duplicate(), true, false);
        MessageExt m = MessageDecoder.decode(bytes, true, true); // clears the flag of compression
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
        r.put("sys_flag", stored.getSysFlag());
        r.put("born_timestamp", m.getBornTimestamp());
        r.put("store_timestamp", m.getStoreTimestamp());
        r.put("born_host", host(m.getBornHost()));
        r.put("store_host", host(m.getStoreHost()));
        r.put("body_crc", m.getBodyCRC());
        r.put("msg_id", m.getMsgId());
        r.put("body_sha1", BASE64.encodeToString(MessageDigest.getInstance("SHA-1").digest(body)));
        r.put("properties", m.getProperties() == null ? Map.of() : new TreeMap<>(m.getProperties()));
        return r;
    }

    /** Rows: topic, queue id, queue offset, physical offset, size, tags code, record or null. */
    private void dump(JSONObject request, JSONObject end) throws Exception {
        awaitDispatch();
        String topic = request.getString("topic");
        long count = 0;
        for (Map<Integer, ConsumeQueueInterface> queues : new TreeMap<>(store.getConsumeQueueTable()).values()) {
            for (ConsumeQueueInterface queue : new TreeMap<>(queues).values()) {
                if (topic != null && !topic.equals(queue.getTopic())) {
                    continue;
                }
                for (long at = queue.getMinOffsetInQueue(); at < queue.getMaxOffsetInQueue(); count++) {
                    CqUnit unit = queue.get(at);
                    SelectMappedBufferResult found = store.getCommitLog().getMessage(unit.getPos(), unit.getSize());
                    Object fields = null;
                    if (found != null) {
                        fields = record(found.getByteBuffer());
                        found.release();
                    }
                    row(Arrays.asList(queue.getTopic(), queue.getQueueId(), at, unit.getPos(), unit.getSize(),
                        unit.getTagsCode(), fields));
                    at += Math.max(1, unit.getBatchNum());
                }
            }
        }
        end.put("count", count);
    }

    /** Rows: the records in the order of the store's own answer. */
    private void query(JSONObject request) throws Exception {
        awaitDispatch();
        QueryMessageResult found = store.queryMessage(request.getString("topic"), request.getString("key"),
            request.getIntValue("max"), request.getLongValue("begin"), request.getLongValue("end"));
        for (ByteBuffer bytes : found.getMessageBufferList()) {
            row(Collections.singletonList(record(bytes)));
        }
        found.release();
    }
}
