package rmqstore.interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import org.apache.commons.cli.CommandLine;
import org.apache.commons.cli.Options;
import org.apache.commons.cli.PosixParser;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.srvutil.ServerUtil;
import org.apache.rocketmq.tools.command.SubCommand;

/** mqadmin's commands, one after the other in this process, at whatever name server. */
final class AdminCommands {
    private final List<DefaultMQPushConsumer> consumers = new ArrayList<>();
    private final List<DefaultMQProducer> producers = new ArrayList<>();

    static boolean knows(String op) {
        return op.startsWith("admin_");
    }

    void answer(JSONObject request, JSONObject end) throws Exception {
        switch (request.getString("op")) {
            case "admin_run" -> run(request);
            case "admin_connect" -> connect(request);
            case "admin_disconnect" -> disconnect();
            default -> throw new IllegalArgumentException(request.getString("op"));
        }
    }

    /** A row a command: what it threw, or null, and what it printed. */
    private void run(JSONObject request) throws Exception {
        System.setProperty(MixAll.NAMESRV_ADDR_PROPERTY, request.getString("namesrv"));
        Map<String, SubCommand> known = commands();
        for (Object each : request.getJSONArray("commands")) {
            String[] words = ((JSONArray) each).toArray(new String[0]);
            SubCommand command = known.get(words[0]);
            if (command == null) {
                StoreDriver.row("no such command", "");
                continue;
            }
            PrintStream before = System.out;
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            String thrown = null;
            try {
                System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
                execute(command, words);
            } catch (Throwable error) {
                thrown = text(error);
            } finally {
                System.setOut(before);
            }
            StoreDriver.row(thrown, printed.toString(StandardCharsets.UTF_8));
        }
    }

    /** All commands by name; MQAdminStartup, which lists them, needs a logger that is left out here. */
    private static Map<String, SubCommand> commands() throws Exception {
        Map<String, SubCommand> known = new HashMap<>();
        try (JarFile jar = new JarFile(new File(
            SubCommand.class.getProtectionDomain().getCodeSource().getLocation().toURI()))) {
            for (JarEntry entry : Collections.list(jar.entries())) {
                String name = entry.getName();
                if (!name.contains("/command/") || !name.matches(".*(Command|Commad|CMD)\\.class")) {
                    continue;
                }
                Class<?> found = Class.forName(name.substring(0, name.length() - 6).replace('/', '.'));
                if (SubCommand.class.isAssignableFrom(found) && !found.isInterface()) {
                    SubCommand command = (SubCommand) found.getDeclaredConstructor().newInstance();
                    known.put(command.commandName(), command);
                }
            }
        }
        return known;
    }

    private static void execute(SubCommand command, String[] words) throws Exception {
        String[] arguments = new String[words.length - 1];
        System.arraycopy(words, 1, arguments, 0, arguments.length);
        Options options = command.buildCommandlineOptions(ServerUtil.buildCommandlineOptions(new Options()));
        CommandLine line = new PosixParser().parse(options, arguments);
        command.execute(line, options, null);
    }

    private static String text(Throwable error) {
        StringBuilder text = new StringBuilder();
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (!(cause instanceof InvocationTargetException)) {
                text.append(cause.getClass().getSimpleName()).append(": ").append(cause.getMessage()).append('\n');
            }
        }
        return text.toString();
    }

    /** A push consumer and a producer under names that are the same each time. */
    private void connect(JSONObject request) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(request.getString("group"));
        consumer.setNamesrvAddr(request.getString("namesrv"));
        consumer.setClientIP("192.0.2.1");
        consumer.setInstanceName(request.getString("name"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(request.getString("topic"), "TagA || TagB");
        consumer.registerMessageListener(
            (List<org.apache.rocketmq.common.message.MessageExt> messages,
                org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext context) ->
                ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        consumer.start();
        consumers.add(consumer);
        DefaultMQProducer producer = new DefaultMQProducer(request.getString("producer"));
        producer.setNamesrvAddr(request.getString("namesrv"));
        producer.setClientIP("192.0.2.1");
        producer.setInstanceName(request.getString("name") + "-p");
        producer.start();
        MQClientInstance instance = producer.getDefaultMQProducerImpl().getmQClientFactory();
        instance.updateTopicRouteInfoFromNameServer(request.getString("topic"));
        instance.sendHeartbeatToAllBrokerWithLock();
        producers.add(producer);
    }

    void disconnect() {
        consumers.forEach(DefaultMQPushConsumer::shutdown);
        consumers.clear();
        producers.forEach(DefaultMQProducer::shutdown);
        producers.clear();
    }
}
