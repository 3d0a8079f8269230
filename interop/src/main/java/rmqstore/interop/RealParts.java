package rmqstore.interop;

import com.alibaba.fastjson.JSONObject;
import java.lang.reflect.Field;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.Properties;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.store.DefaultMessageStore;

/** Settings and private parts of the real thing that both drivers reach for. */
final class RealParts {
    private RealParts() {
    }

    /** Sets what is given by its RocketMQ name; what cannot be set is an error. */
    static void configure(Object config, JSONObject given) {
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

    /** Binds replication to a free loopback port; the release can only listen on all addresses. */
    static void listenOnLoopback(DefaultMessageStore store) throws Exception {
        Object accept = field(store.getHaService(), "acceptSocketService");
        Field address = accept.getClass().getDeclaredField("socketAddressListen");
        address.setAccessible(true);
        address.set(accept, new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
    }

    static Object field(Object of, String name) throws Exception {
        for (Class<?> c = of.getClass(); c != null; c = c.getSuperclass()) {
            for (Field f : c.getDeclaredFields()) {
                if (f.getName().equals(name)) {
                    f.setAccessible(true);
                    return f.get(of);
                }
            }
        }
        throw new NoSuchFieldException(name);
    }
}
