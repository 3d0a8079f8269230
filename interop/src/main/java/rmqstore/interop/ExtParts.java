package rmqstore.interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.ByteBuffer;
import java.util.Base64;
import java.util.Map;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.filter.util.BloomFilter;
import org.apache.rocketmq.store.ConsumeQueue;
import org.apache.rocketmq.store.ConsumeQueueExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.SelectMappedBufferResult;

/** What the real ConsumeQueueExt and BloomFilter answer. */
final class ExtParts {
    private ExtParts() {
    }

    /** A row for each unit: its place, its tags code, and the fields of its ext unit, null without. */
    static void units(DefaultMessageStore store) {
        for (Map.Entry<String, ConcurrentMap<Integer, ConsumeQueue>> topic : store.getConsumeQueueTable().entrySet()) {
            for (ConsumeQueue queue : topic.getValue().values()) {
                queue(queue);
            }
        }
    }

    private static void queue(ConsumeQueue queue) {
        long at = queue.getMinOffsetInQueue();
        while (at < queue.getMaxOffsetInQueue()) {
            SelectMappedBufferResult found = queue.getIndexBuffer(at);
            if (found == null) {
                return;
            }
            try {
                ByteBuffer bytes = found.getByteBuffer();
                while (bytes.remaining() >= ConsumeQueue.CQ_STORE_UNIT_SIZE) {
                    bytes.getLong();
                    bytes.getInt();
                    unit(queue, at++, bytes.getLong());
                }
            } finally {
                found.release();
            }
        }
    }

    private static void unit(ConsumeQueue queue, long at, long code) {
        ConsumeQueueExt.CqExtUnit ext = queue.isExtAddr(code) ? queue.getExt(code) : null;
        if (ext == null) {
            StoreDriver.row(queue.getTopic(), queue.getQueueId(), at, code, null, null, null);
            return;
        }
        byte[] bits = ext.getFilterBitMap();
        StoreDriver.row(queue.getTopic(), queue.getQueueId(), at, code, ext.getTagsCode(), ext.getMsgStoreTime(),
            bits == null ? "" : Base64.getEncoder().encodeToString(bits));
    }

    /** For each {@code [error rate, subscriptions, text]} a row: k, m, and the bits of the text. */
    static void bloom(JSONObject request) {
        for (Object each : request.getJSONArray("filters")) {
            JSONArray given = (JSONArray) each;
            BloomFilter filter = BloomFilter.createByFn(given.getIntValue(0), given.getIntValue(1));
            StoreDriver.row(filter.getK(), filter.getM(), filter.calcBitPositions(given.getString(2)));
        }
    }
}
