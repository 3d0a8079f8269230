package rmqstore.clients;

import java.util.Map;
import java.util.TreeMap;

/** Scenarios by name. Each has topics and groups of its own, so that one is nothing to another. */
final class Scenarios {
    /** What a scenario does. */
    interface Scenario {
        void run(Session session) throws Exception;
    }

    private static final Map<String, Scenario> ALL = new TreeMap<>();

    static {
        ALL.put("quickstart", Sending::quickstart);
        ALL.put("put", Sending::put);
        ALL.put("async", Sending::async);
        ALL.put("oneway", Sending::oneway);
        ALL.put("batch", Sending::batch);
        ALL.put("big", Sending::big);
        ALL.put("vip", Sending::vip);
        ALL.put("binary", Sending::binary);
        ALL.put("missing", Sending::missing);
        ALL.put("idle", Sending::idle);
        ALL.put("trace", Sending::trace);
        ALL.put("delay", Ends::delay);
        ALL.put("tx", Ends::transactions);
        ALL.put("retry", Ends::retry);
        ALL.put("request", Ends::request);
        ALL.put("tx-open", Lasting::open);
        ALL.put("tx-finish", Lasting::finish);
        ALL.put("turns-fill", Lasting::fill);
        ALL.put("turns-stay", Lasting::stay);
        ALL.put("push", Pushing::push);
        ALL.put("tags", Pushing::tags);
        ALL.put("sql", Pushing::sql);
        ALL.put("broadcast", Pushing::broadcast);
        ALL.put("rebalance", Pushing::rebalance);
        ALL.put("orderly", Pushing::orderly);
        ALL.put("pull", Pulling::pull);
        ALL.put("litepull", Pulling::litePull);
        ALL.put("liteassign", Pulling::liteAssign);
        ALL.put("query", Pulling::query);
        ALL.put("accounts", Accounts::accounts);
        ALL.put("strangers", Accounts::strangers);
    }

    private Scenarios() {
    }

    static void run(String name, Session session) throws Exception {
        Scenario scenario = ALL.get(name);
        if (scenario == null) {
            throw new IllegalArgumentException("no scenario " + name + ", there are " + ALL.keySet());
        }
        scenario.run(session);
    }
}
