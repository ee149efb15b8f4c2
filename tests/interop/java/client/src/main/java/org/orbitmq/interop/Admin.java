package org.orbitmq.interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.security.Permission;
import java.util.Map;
import java.util.UUID;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Administration: any {@code mqadmin} command line, and {@code route} as the admin client sees it. */
final class Admin {
    private Admin() {
    }

    static void register(Map<String, Scenario> scenarios) {
        scenarios.put("mqadmin", Admin::mqadmin);
        scenarios.put("route", Admin::route);
        System.setSecurityManager(new StayAlive());
    }

    /** Runs one command line; one at a time, since its output is caught through System.out. */
    private static synchronized Object mqadmin(JSONObject args) {
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

    private static Object route(JSONObject args) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(args.getString("namesrv"));
        admin.setInstanceName(UUID.randomUUID().toString());
        admin.start();
        try {
            return JSON.parse(JSON.toJSONString(admin.examineTopicRouteInfo(args.getString("topic"))));
        } finally {
            admin.shutdown();
        }
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
