package rmqstore.interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import io.netty.bootstrap.ServerBootstrap;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.net.BindException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.SocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Set;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.constant.PermName;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * A real name server, broker and clients in one process, on loopback alone.
 *
 * <p>Requests and answers are as {@link StoreDriver}'s. One broker runs at a time: {@code start} to
 * {@code shutdown}, or {@code halt}. What only reads the store is answered by {@link StoreDriver} from
 * the broker's own DefaultMessageStore, while the broker runs; the clients' part is {@link Clients}.
 */
public final class BrokerDriver {
    private static final int EXIT_HALT = 137;
    private static final int VIP_DISTANCE = 2;
    private static final Set<String> READS =
        Set.of("info", "dump", "query", "locate", "records", "get", "time", "minmax", "flush", "ext");

    private NamesrvController names;
    private BrokerController broker;
    private DefaultMessageStore store;
    private StoreDriver reader;
    private Clients clients;
    private final AdminCommands commands = new AdminCommands();

    /** Takes the port that a server asks for, but on loopback; the release takes all addresses. */
    private static final class LoopbackBootstrap extends ServerBootstrap {
        private final int fixedPort;

        LoopbackBootstrap(int fixedPort) {
            this.fixedPort = fixedPort;
        }

        @Override
        public ServerBootstrap localAddress(SocketAddress ignored) {
            return super.localAddress(new InetSocketAddress(InetAddress.getLoopbackAddress(), fixedPort));
        }
    }

    public static void main(String[] args) throws Exception {
        // Else the name server takes the broker for one that is too old to keep topics of.
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
        StoreDriver.serve(new BrokerDriver()::answer);
    }

    private void answer(JSONObject request, JSONObject end) throws Exception {
        String op = request.getString("op");
        switch (op) {
            case "ping" -> end.put("pid", ProcessHandle.current().pid());
            case "start" -> start(request, end);
            case "filters_evaluate" -> Filters.evaluate(request);
            case "halt" -> end.put("exit", EXIT_HALT);
            case "exit" -> {
                if (broker != null) {
                    shutdown(end);
                }
                end.put("exit", 0);
            }
            default -> {
                if (AdminCommands.knows(op)) {
                    commands.answer(request, end);
                    return;
                }
                if (broker == null) {
                    throw new IllegalStateException("no broker runs");
                }
                if (READS.contains(op)) {
                    reader.answer(request, end);
                    return;
                }
                switch (op) {
                    case "topics" -> topics(request);
                    case "clean" -> clean(request, end);
                    case "shutdown" -> shutdown(end);
                    default -> clients.answer(request, end);
                }
            }
        }
    }

    // ---- start and end

    private void start(JSONObject request, JSONObject end) throws Exception {
        if (broker != null) {
            throw new IllegalStateException("a broker runs already");
        }
        names = new NamesrvController(new NamesrvConfig(), serverConfig(0));
        names.initialize();
        listenOnLoopback(RealParts.field(names, "remotingServer"), 0);
        names.start();
        int namesPort = names.getRemotingServer().localListenPort();

        String root = request.getString("dir");
        MessageStoreConfig storeConfig = new MessageStoreConfig();
        storeConfig.setStorePathRootDir(root);
        storeConfig.setStorePathCommitLog(root + "/commitlog");
        storeConfig.setCleanFileForciblyEnable(false);
        storeConfig.setOsPageCacheBusyTimeOutMills(60_000); // a slow machine is no reason to refuse
        RealParts.configure(storeConfig, request.getJSONObject("config"));
        BrokerConfig config = new BrokerConfig();
        config.setBrokerName(Clients.BROKER);
        config.setBrokerIP1("127.0.0.1");
        config.setBrokerIP2("127.0.0.1");
        config.setNamesrvAddr("127.0.0.1:" + namesPort);
        config.setEnablePropertyFilter(true);
        config.setBrokerFastFailureEnable(false);
        RealParts.configure(config, request.getJSONObject("broker"));

        // Ids carry the port, so it is needed before anything listens on it.
        int port = freePort();
        end.put("clean", !Files.exists(Path.of(root, "abort")));
        BrokerController candidate =
            new BrokerController(config, serverConfig(port), new NettyClientConfig(), storeConfig);
        boolean loaded = candidate.initialize();
        end.put("load", loaded);
        if (!loaded) {
            names.shutdown();
            return;
        }
        store = (DefaultMessageStore) candidate.getMessageStore();
        RealParts.listenOnLoopback(store);
        listenOnLoopback(RealParts.field(candidate, "remotingServer"), port);
        listenOnLoopback(RealParts.field(candidate, "fastRemotingServer"), port - VIP_DISTANCE);
        candidate.start();
        broker = candidate;
        reader = new StoreDriver().use(store);
        clients = new Clients(config.getNamesrvAddr());
        end.put("store_host", broker.getBrokerAddr());
        end.put("names_port", namesPort);
    }

    private static NettyServerConfig serverConfig(int port) {
        NettyServerConfig config = new NettyServerConfig();
        config.setListenPort(port);
        return config;
    }

    /** A port that is free, and with it the one of the VIP channel. */
    private static int freePort() throws Exception {
        InetAddress loopback = InetAddress.getLoopbackAddress();
        while (true) {
            try (ServerSocket socket = new ServerSocket(0, 1, loopback);
                 ServerSocket vip = new ServerSocket(socket.getLocalPort() - VIP_DISTANCE, 1, loopback)) {
                return vip.getLocalPort() + VIP_DISTANCE;
            } catch (BindException taken) {
                continue;
            }
        }
    }

    private static void listenOnLoopback(Object server, int port) throws Exception {
        Field bootstrap = server.getClass().getDeclaredField("serverBootstrap");
        bootstrap.setAccessible(true);
        bootstrap.set(server, new LoopbackBootstrap(port));
    }

    private void shutdown(JSONObject end) {
        clients.shutdown();
        BrokerController closing = broker;
        broker = null;
        closing.shutdown();
        names.shutdown();
        end.put("clean",
            !Files.exists(Path.of(closing.getMessageStoreConfig().getStorePathRootDir(), "abort")));
    }

    // ---- what a broker's owner does

    /** Makes topics, each {@code [name, queues]}, and lets the name server know of them. */
    private void topics(JSONObject request) {
        for (Object each : request.getJSONArray("topics")) {
            JSONArray topic = (JSONArray) each;
            int queues = topic.getIntValue(1);
            broker.getTopicConfigManager().updateTopicConfig(
                new TopicConfig(topic.getString(0), queues, queues, PermName.PERM_READ | PermName.PERM_WRITE));
        }
        broker.registerBrokerAll(false, false, true);
    }

    /**
     * Deletes files as retention does: with {@code reserved_ms} those not changed for so long, since the
     * configuration knows hours only; without it one round of the broker's own, as asked for by an owner or,
     * {@code by_itself}, by its deleteWhen alone.
     */
    private void clean(JSONObject request, JSONObject end) throws Exception {
        if (request.containsKey("reserved_ms")) {
            MessageStoreConfig config = broker.getMessageStoreConfig();
            store.getCommitLog().deleteExpiredFile(request.getLongValue("reserved_ms"),
                config.getDeleteCommitLogFilesInterval(), config.getDestroyMapedFileIntervalForcibly(), false);
            Object queues = RealParts.field(store, "cleanConsumeQueueService");
            invoke(queues, "run");
        } else {
            if (!request.getBooleanValue("by_itself")) {
                store.executeDeleteFilesManually();
            }
            invoke(store, "cleanFilesPeriodically");
        }
        end.put("min_phy_offset", store.getMinPhyOffset());
        end.put("max_phy_offset", store.getMaxPhyOffset());
    }

    private static void invoke(Object of, String name) throws Exception {
        Method method = of.getClass().getDeclaredMethod(name);
        method.setAccessible(true);
        method.invoke(of);
    }
}
