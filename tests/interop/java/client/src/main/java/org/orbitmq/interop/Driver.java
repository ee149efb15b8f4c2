package org.orbitmq.interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Drives the official clients on orders from a test: one JSON object per line in, one per line out.
 *
 * <p>A request is {@code {"id":1,"scenario":"produce","args":{}}}; its answer has the same id and
 * either {@code "ok":true} with a result or {@code "ok":false} with error and trace. Requests run at
 * the same time, so answers may come in another order. Whatever else is printed goes to stderr.
 */
public final class Driver {
    private static final PrintStream ANSWERS =
        new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);

    private final Map<String, Scenario> scenarios = new TreeMap<>();

    private Driver() {
        scenarios.put("ping", args -> Map.of("java", System.getProperty("java.version")));
        Producing.register(scenarios);
        Transacting.register(scenarios);
        Requesting.register(scenarios);
        Consuming.register(scenarios);
        Consumers.register(scenarios);
        Loading.register(scenarios);
        Admin.register(scenarios);
        Filtering.register(scenarios);
        Allocating.register(scenarios);
    }

    public static void main(String[] argv) throws Exception {
        System.setOut(System.err);
        StoppedThreads.wakeThem();
        new Driver().serve();
        // Client threads that outlive their client must not keep the process.
        Runtime.getRuntime().halt(0);
    }

    private void serve() throws Exception {
        ExecutorService workers = Executors.newCachedThreadPool();
        BufferedReader requests =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JSONObject request = JSON.parseObject(line);
            if ("exit".equals(request.getString("scenario"))) {
                write(succeeded(request, Map.of()));
                return;
            }
            workers.execute(() -> write(answer(request)));
        }
    }

    private JSONObject answer(JSONObject request) {
        String name = request.getString("scenario");
        Scenario scenario = scenarios.get(name);
        try {
            if (scenario == null) {
                throw new IllegalArgumentException("no scenario " + name + "; known: " + scenarios.keySet());
            }
            return succeeded(request, scenario.run(request.getJSONObject("args")));
        } catch (Throwable failure) {
            return failed(request, failure);
        }
    }

    private static JSONObject succeeded(JSONObject request, Object result) {
        JSONObject answer = new JSONObject();
        answer.put("id", request.get("id"));
        answer.put("ok", true);
        answer.put("result", result);
        return answer;
    }

    private static JSONObject failed(JSONObject request, Throwable failure) {
        StringWriter trace = new StringWriter();
        failure.printStackTrace(new PrintWriter(trace));
        JSONObject answer = new JSONObject();
        answer.put("id", request.get("id"));
        answer.put("ok", false);
        answer.put("error", failure.toString());
        answer.put("trace", trace.toString());
        return answer;
    }

    private static synchronized void write(JSONObject answer) {
        ANSWERS.println(
            JSON.toJSONString(
                answer,
                SerializerFeature.WriteMapNullValue,
                SerializerFeature.DisableCircularReferenceDetect));
    }
}
