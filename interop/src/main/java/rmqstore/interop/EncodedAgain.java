package rmqstore.interop;

import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.common.message.*;

/** A record decoded and encoded again, both by the release. */
final class EncodedAgain {
    private EncodedAgain() {
    }

    static byte[] bytes(ByteBuffer record) throws Exception {
        MessageExt m = MessageDecoder.decode(record.duplicate(), true, false);
        if (m.getBody() == null) {
            m.setBody(new byte[0]); // which it decodes to null and does not encode
        }
        MessageAccessor.setProperties(m, propertiesInOrder(record, m));
        return MessageDecoder.encode(m, false);
    }

    /** The properties as they are stored; a decoded message has them in a hash map, which knows no order. */
    private static Map<String, String> propertiesInOrder(ByteBuffer record, MessageExt m) {
        int at = 48 + hostBytes(m.getBornHost()) + 8 + hostBytes(m.getStoreHost()) + 4 + 8; // BODYLENGTH
        at += 4 + m.getBody().length;
        at += 1 + record.get(at);
        byte[] stored = new byte[record.getShort(at)];
        record.position(at + 2);
        record.get(stored);
        Map<String, String> properties = new LinkedHashMap<>();
        for (String pair : new String(stored, StandardCharsets.UTF_8).split("\u0002")) {
            int split = pair.indexOf('\u0001');
            if (split > 0) {
                properties.put(pair.substring(0, split), pair.substring(split + 1));
            }
        }
        return properties;
    }

    private static int hostBytes(SocketAddress host) {
        return ((InetSocketAddress) host).getAddress().getAddress().length + 4;
    }
}
