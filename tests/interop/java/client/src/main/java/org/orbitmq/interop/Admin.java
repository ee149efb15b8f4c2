package org.orbitmq.interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.security.Permission;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Administration: any {@code mqadmin} command line, {@code route} as the admin client sees it,
 * messages by keys ({@code find}) and by the ids that name an offset ({@code view}), and how far each
 * member of a group says it is ({@code consume_status}).
 */
final class Admin {
    private static final int FOUND_MAX = 32;
    // RocketMQ's own constant moved to another package between the lines.
    private static final int NO_MESSAGE = 208;

    private Admin() {
    }

    static void register(Map<String, Scenario> scenarios) {
        scenarios.put("mqadmin", Admin::mqadmin);
        scenarios.put("route", Admin::route);
        scenarios.put("find", Admin::find);
        scenarios.put("view", Admin::view);
        scenarios.put("consume_status", Admin::consumeStatus);
        System.setSecurityManager(new StayAlive());
    }

    /** Runs one command line; one at a time, since its output is caught through System.out. */
    private static synchronized Object mqadmin(JSONObject args) throws IllegalAccessException {
        forgetCommands();
        PrintStream out = System.out;
        PrintStream err = System.err;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        ByteArrayOutputStream complained = new ByteArrayOutputStream();
        StayAlive.GUARDED.set(true);
        System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(complained, true, StandardCharsets.UTF_8));
        try {
            MQAdminStartup.main0(args.getJSONArray("arguments").toArray(new String[0]), null);
        } catch (ExitRefusedException refused) {
            System.err.println(refused.getMessage());
        } finally {
            System.setOut(out);
            System.setErr(err);
            StayAlive.GUARDED.set(false);
            System.clearProperty(MixAll.NAMESRV_ADDR_PROPERTY);
        }
        return Map.of(
            "stdout", printed.toString(StandardCharsets.UTF_8),
            "stderr", complained.toString(StandardCharsets.UTF_8));
    }

    /** Has mqadmin make its commands anew: some keep a client that they shut down. */
    private static void forgetCommands() throws IllegalAccessException {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (List.class.isAssignableFrom(field.getType())) {
                field.setAccessible(true);
                ((List<?>) field.get(null)).clear();
            }
        }
    }

    private static Object route(JSONObject args) throws Exception {
        return withClient(args, admin ->
            JSON.parse(JSON.toJSONString(admin.examineTopicRouteInfo(args.getString("topic")))));
    }

    private static Object find(JSONObject args) throws Exception {
        return withClient(args, admin -> {
            JSONObject found = new JSONObject();
            for (String key : args.getJSONArray("keys").toJavaList(String.class)) {
                found.put(key, messages(admin, args.getString("topic"), key));
            }
            return found;
        });
    }

    private static List<JSONObject> messages(DefaultMQAdminExt admin, String topic, String key)
        throws Exception {
        List<JSONObject> messages = new ArrayList<>();
        try {
            for (MessageExt message
                : admin.queryMessage(topic, key, FOUND_MAX, 0, Long.MAX_VALUE).getMessageList()) {
                messages.add(Consuming.shown(message));
            }
        } catch (MQClientException failure) {
            if (failure.getResponseCode() != NO_MESSAGE) {
                throw failure;
            }
        }
        return messages;
    }

    private static Object view(JSONObject args) throws Exception {
        return withClient(args, admin -> {
            JSONObject seen = new JSONObject();
            for (String id : args.getJSONArray("ids").toJavaList(String.class)) {
                seen.put(id, Consuming.shown(admin.viewMessage(args.getString("topic"), id)));
            }
            return seen;
        });
    }

    private static Object consumeStatus(JSONObject args) throws Exception {
        return withClient(args, admin -> {
            JSONObject members = new JSONObject();
            admin.getConsumeStatus(args.getString("topic"), args.getString("group"), null)
                .forEach((clientId, offsets) -> {
                    JSONObject queues = new JSONObject();
                    offsets.forEach((queue, offset) ->
                        queues.put(String.valueOf(queue.getQueueId()), offset));
                    members.put(clientId, queues);
                });
            return members;
        });
    }

    private static Object withClient(JSONObject args, Question question) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(Producing.CALL_TIMEOUT_MS);
        admin.setMqClientApiTimeout(Producing.CALL_TIMEOUT_MS);
        admin.setNamesrvAddr(args.getString("namesrv"));
        admin.setInstanceName(UUID.randomUUID().toString());
        admin.start();
        try {
            return question.ask(admin);
        } finally {
            admin.shutdown();
        }
    }

    /** Something to ask an admin client. */
    @FunctionalInterface
    private interface Question {
        Object ask(DefaultMQAdminExt admin) throws Exception;
    }

    /** Thrown in place of an exit that a command asked for. */
    private static final class ExitRefusedException extends SecurityException {
        private static final long serialVersionUID = 1L;

        ExitRefusedException(int status) {
            super("exit with status " + status);
        }
    }

    /** Keeps mqadmin, which exits on arguments it cannot parse, from ending the driver. */
    private static final class StayAlive extends SecurityManager {
        static final ThreadLocal<Boolean> GUARDED = ThreadLocal.withInitial(() -> false);

        @Override
        public void checkExit(int status) {
            if (GUARDED.get()) {
                throw new ExitRefusedException(status);
            }
        }

        @Override
        public void checkPermission(Permission permission) {
            // Everything else is allowed.
        }

        @Override
        public void checkPermission(Permission permission, Object context) {
            // Everything else is allowed.
        }
    }
}
