package rmqstore.clients;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Real clients that do what they are told: requests on standard input, a JSON object a line; rows, JSON
 * arrays, and a last line, a JSON object, on standard output. Ends when its input does.
 *
 * <p>{@code {"op": "run", "scenario": "push", "namesrv": "127.0.0.1:9876"}} runs one of {@link Scenarios};
 * {@code load_*} are {@link Load}'s, {@code program} is {@link Program}'s, {@code measure}
 * {@link Measure}'s.
 */
public final class Main {
    private static final PrintStream OUT =
        new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
    private static final int EXIT_TIMEOUT = 3;
    private static final int EXIT_INPUT_ENDED = 4;
    private static final long DEFAULT_TIMEOUT_SECONDS = 60;

    private final Map<String, Load> loads = new ConcurrentHashMap<>();

    private Main() {
    }

    public static void main(String[] args) throws Exception {
        System.setOut(System.err); // nothing but answers may reach the real standard output
        Main main = new Main();
        ExecutorService worker = Executors.newCachedThreadPool(task -> {
            Thread thread = new Thread(task, "requests");
            thread.setDaemon(true);
            return thread;
        });
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JSONObject request = JSON.parseObject(line);
            JSONObject end = new JSONObject(true);
            if (!main.bounded(worker, request, end)) {
                OUT.println("{\"ok\":false,\"error\":\"timeout\"}");
                OUT.flush();
                Runtime.getRuntime().halt(EXIT_TIMEOUT);
            }
            print(end);
        }
        Runtime.getRuntime().halt(EXIT_INPUT_ENDED);
    }

    private boolean bounded(ExecutorService worker, JSONObject request, JSONObject end) throws Exception {
        Long seconds = request.getLong("timeout");
        Callable<Void> task = () -> {
            answer(request, end);
            return null;
        };
        Future<Void> done = worker.submit(task);
        try {
            done.get(seconds == null ? DEFAULT_TIMEOUT_SECONDS : seconds, TimeUnit.SECONDS);
            end.put("ok", true);
        } catch (ExecutionException e) {
            e.getCause().printStackTrace();
            end.put("ok", false);
            end.put("error", e.getCause().toString());
        } catch (TimeoutException e) {
            for (Map.Entry<Thread, StackTraceElement[]> each : Thread.getAllStackTraces().entrySet()) {
                System.err.println(each.getKey());
                for (StackTraceElement frame : each.getValue()) {
                    System.err.println("    " + frame);
                }
            }
            return false;
        }
        return true;
    }

    private void answer(JSONObject request, JSONObject end) throws Exception {
        switch (request.getString("op")) {
            case "run" -> {
                try (Session session = new Session(request)) {
                    Scenarios.run(request.getString("scenario"), session);
                }
            }
            case "load_start" -> {
                Load load = new Load(request);
                loads.put(request.getString("name"), load);
                load.start();
            }
            case "load_quiet" -> loads.get(request.getString("name")).quiet();
            case "load_rows" -> loads.get(request.getString("name")).rows(end);
            case "load_stop" -> loads.remove(request.getString("name")).stop(end);
            case "program" -> new Program(request).run();
            case "measure" -> Measure.run(request, end);
            default -> throw new IllegalArgumentException("unknown op: " + request.getString("op"));
        }
    }

    /** Prints a row; any thread may. */
    static void row(Object... values) {
        print(values);
    }

    private static synchronized void print(Object value) {
        OUT.println(JSON.toJSONString(value, SerializerFeature.WriteMapNullValue,
            SerializerFeature.DisableCircularReferenceDetect));
        OUT.flush();
    }
}
