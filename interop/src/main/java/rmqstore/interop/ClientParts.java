package rmqstore.interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.trace.TraceBean;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;
import org.apache.rocketmq.client.trace.TraceType;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageType;

/** What the real client makes of bodies, without a broker: compression and traces. */
final class ClientParts {
    private ClientParts() {
    }

    private static byte[] bytes(Object base64) {
        return Base64.getDecoder().decode((String) base64);
    }

    private static String base64(byte[] bytes) {
        return Base64.getEncoder().encodeToString(bytes);
    }

    /** Rows: each body as a producer with the default level compresses it. */
    static void deflate(JSONObject request) throws Exception {
        for (Object body : request.getJSONArray("bodies")) {
            StoreDriver.row(base64(UtilAll.compress(bytes(body), 5)));
        }
    }

    /** Rows: the body of each record as a consumer has it. */
    static void inflate(JSONObject request) {
        for (Object raw : request.getJSONArray("records")) {
            MessageExt message = MessageDecoder.decode(ByteBuffer.wrap(bytes(raw)), true, true);
            StoreDriver.row(base64(message.getBody() == null ? new byte[0] : message.getBody()));
        }
    }

    /**
     * Rows: the body of a trace message for each context, and what TraceDataEncoder reads of it; null where it
     * fails, as it does for a last field that is empty.
     */
    static void traces(JSONObject request) {
        for (Object each : request.getJSONArray("contexts")) {
            TraceContext context = context((JSONObject) each);
            String text = TraceDataEncoder.encoderFromContextBean(context).getTransData();
            List<Object> read = new ArrayList<>();
            List<TraceContext> decoded;
            try {
                decoded = TraceDataEncoder.decoderFromTraceDataString(text);
            } catch (ArrayIndexOutOfBoundsException e) {
                StoreDriver.row(base64(text.getBytes(StandardCharsets.UTF_8)), null);
                continue;
            }
            for (TraceContext one : decoded) {
                TraceBean bean = one.getTraceBeans().get(0);
                JSONArray fields = new JSONArray();
                fields.add(one.getTraceType().name());
                fields.add(one.getTimeStamp());
                fields.add(one.getGroupName());
                fields.add(one.getCostTime());
                fields.add(one.isSuccess());
                fields.add(one.getRequestId());
                fields.add(one.getContextCode());
                fields.add(bean.getTopic());
                fields.add(bean.getMsgId());
                fields.add(bean.getTags());
                fields.add(bean.getKeys());
                fields.add(bean.getStoreHost());
                fields.add(bean.getBodyLength());
                fields.add(bean.getRetryTimes());
                fields.add(bean.getMsgType() == null ? null : bean.getMsgType().name());
                fields.add(bean.getOffsetMsgId());
                fields.add(bean.getTransactionId());
                fields.add(bean.getTransactionState() == null ? null : bean.getTransactionState().name());
                fields.add(bean.isFromTransactionCheck());
                read.add(fields);
            }
            StoreDriver.row(base64(text.getBytes(StandardCharsets.UTF_8)), read);
        }
    }

    private static TraceContext context(JSONObject o) {
        TraceContext context = new TraceContext();
        context.setTraceType(TraceType.valueOf(o.getString("type")));
        context.setTimeStamp(o.getLongValue("time"));
        context.setRegionId(o.getString("region"));
        context.setGroupName(o.getString("group"));
        context.setCostTime(o.getIntValue("cost"));
        context.setSuccess(o.getBooleanValue("success"));
        context.setRequestId(o.getString("request_id"));
        context.setContextCode(o.getIntValue("context_code"));
        List<TraceBean> beans = new ArrayList<>();
        for (Object each : o.getJSONArray("beans")) {
            JSONObject b = (JSONObject) each;
            TraceBean bean = new TraceBean();
            bean.setTopic(b.getString("topic"));
            bean.setMsgId(b.getString("msg_id"));
            bean.setTags(b.getString("tags"));
            bean.setKeys(b.getString("keys"));
            bean.setStoreHost(b.getString("store_host"));
            bean.setBodyLength(b.getIntValue("body_length"));
            bean.setRetryTimes(b.getIntValue("retry_times"));
            bean.setMsgType(MessageType.values()[b.getIntValue("message_type")]);
            bean.setOffsetMsgId(b.getString("offset_msg_id"));
            bean.setTransactionId(b.getString("transaction_id"));
            bean.setTransactionState(LocalTransactionState.values()[b.getIntValue("state")]);
            bean.setFromTransactionCheck(b.getBooleanValue("from_check"));
            beans.add(bean);
        }
        context.setTraceBeans(beans);
        return context;
    }
}
