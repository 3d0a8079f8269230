package rmqstore.interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.Arrays;
import java.util.Base64;
import java.util.stream.Collectors;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageStore;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** The interface of the store itself: which methods and settings it has, and any of those that read. */
final class StoreMethods {
    private StoreMethods() {
    }

    /** Rows: "method", name and the types of its arguments; then "field", name and type of a setting. */
    static void names() {
        Arrays.stream(MessageStore.class.getDeclaredMethods())
            .map(m -> new Object[] {"method", m.getName(), Arrays.stream(m.getParameterTypes())
                .map(Class::getSimpleName).collect(Collectors.joining(","))})
            .forEach(StoreDriver::row);
        Arrays.stream(MessageStoreConfig.class.getDeclaredFields())
            .filter(f -> !Modifier.isStatic(f.getModifiers()))
            .map(f -> new Object[] {"field", f.getName(), f.getType().getSimpleName()})
            .forEach(StoreDriver::row);
    }

    /** Rows: what a method answers to each list of arguments: numbers and texts as they are, bytes in base64. */
    static void call(DefaultMessageStore store, JSONObject request) throws Exception {
        String name = request.getString("method");
        for (Object each : request.getJSONArray("arguments")) {
            JSONArray given = (JSONArray) each;
            StoreDriver.row(shown(method(name, given.size()), store, given));
        }
    }

    /** Deletes what was not changed for {@code reserved_ms}, as retention does in one round. */
    static void clean(DefaultMessageStore store, JSONObject request, JSONObject end) throws Exception {
        end.put("files", store.getCommitLog().deleteExpiredFile(request.getLongValue("reserved_ms"), 0, 1000, false));
        Object queues = RealParts.field(store, "cleanConsumeQueueService");
        Method run = queues.getClass().getDeclaredMethod("run");
        run.setAccessible(true);
        run.invoke(queues);
    }

    private static Method method(String name, int arguments) throws NoSuchMethodException {
        for (Method m : MessageStore.class.getDeclaredMethods()) {
            if (m.getName().equals(name) && m.getParameterCount() == arguments) {
                return m;
            }
        }
        throw new NoSuchMethodException(name + "/" + arguments);
    }

    private static Object shown(Method method, DefaultMessageStore store, JSONArray given) throws Exception {
        Object[] arguments = new Object[given.size()];
        for (int i = 0; i < arguments.length; i++) {
            Class<?> type = method.getParameterTypes()[i];
            arguments[i] = type == long.class ? (Object) given.getLong(i)
                : type == int.class ? (Object) given.getInteger(i) : given.getString(i);
        }
        Object result;
        try {
            result = method.invoke(store, arguments);
        } catch (InvocationTargetException e) {
            throw new IllegalStateException(method + ": " + e.getCause(), e);
        }
        if (result instanceof SelectMappedBufferResult) {
            SelectMappedBufferResult found = (SelectMappedBufferResult) result;
            try {
                byte[] bytes = new byte[Math.min(found.getSize(), 1 << 20)];
                found.getByteBuffer().get(bytes);
                return Base64.getEncoder().encodeToString(bytes);
            } finally {
                found.release();
            }
        }
        return result instanceof MessageExt ? ((MessageExt) result).getMsgId() : result;
    }
}
