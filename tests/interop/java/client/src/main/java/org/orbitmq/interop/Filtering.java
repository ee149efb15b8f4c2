package org.orbitmq.interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.FilterSpi;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.expression.MQFilterException;

/** Filters without a broker: what official RocketMQ makes of SQL92 and of tag expressions. */
final class Filtering {
    private Filtering() {
    }

    static void register(Map<String, Scenario> scenarios) {
        scenarios.put("filter_sql", Filtering::filterSql);
        scenarios.put("filter_tags", Filtering::filterTags);
    }

    /**
     * Asks each expression about each set of properties. The outcomes of one expression are one
     * text with a letter per set, {@code T F N E} for true, false, NULL and thrown; a refused
     * expression has the text {@code refused}.
     */
    private static Object filterSql(JSONObject args) {
        JSONArray properties = args.getJSONArray("properties");
        FilterSpi sql = FilterFactory.INSTANCE.get("SQL92");
        List<String> outcomes = new ArrayList<>();
        for (Object expression : args.getJSONArray("expressions")) {
            outcomes.add(outcomes(sql, (String) expression, properties));
        }
        return Map.of("outcomes", outcomes);
    }

    private static String outcomes(FilterSpi sql, String expression, JSONArray properties) {
        Expression compiled;
        try {
            compiled = sql.compile(expression);
        } catch (MQFilterException refused) {
            return "refused";
        }
        StringBuilder letters = new StringBuilder();
        for (int at = 0; at < properties.size(); at++) {
            letters.append(outcome(compiled, properties.getJSONObject(at)));
        }
        return letters.toString();
    }

    private static char outcome(Expression compiled, Map<String, Object> properties) {
        try {
            Object value = compiled.evaluate(new Properties(properties));
            if (value == null) {
                return 'N';
            }
            return (Boolean) value ? 'T' : 'F';
        } catch (Exception thrown) {
            return 'E';
        }
    }

    /** Parses each tag expression; a refused one has no tags and no codes. */
    private static Object filterTags(JSONObject args) throws Exception {
        Method build = filterApi().getMethod("buildSubscriptionData", String.class, String.class);
        List<Object> parsed = new ArrayList<>();
        for (Object expression : args.getJSONArray("expressions")) {
            try {
                Object subscription = build.invoke(null, "topic", expression);
                Class<?> type = subscription.getClass();
                parsed.add(
                    Map.of(
                        "expression", type.getMethod("getSubString").invoke(subscription),
                        "tags", type.getMethod("getTagsSet").invoke(subscription),
                        "codes", type.getMethod("getCodeSet").invoke(subscription)));
            } catch (java.lang.reflect.InvocationTargetException refused) {
                parsed.add(Map.of());
            }
        }
        return Map.of("parsed", parsed);
    }

    /** The same class lies in another package in each line. */
    private static Class<?> filterApi() throws ClassNotFoundException {
        try {
            return Class.forName("org.apache.rocketmq.remoting.protocol.filter.FilterAPI");
        } catch (ClassNotFoundException older) {
            return Class.forName("org.apache.rocketmq.common.filter.FilterAPI");
        }
    }

    private record Properties(Map<String, Object> values) implements EvaluationContext {
        @Override
        public Object get(String name) {
            return values.get(name);
        }

        @Override
        public Map<String, Object> keyValues() {
            return values;
        }
    }
}
