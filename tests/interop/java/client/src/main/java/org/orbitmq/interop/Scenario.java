package org.orbitmq.interop;

import com.alibaba.fastjson.JSONObject;

/** One thing the driver can be asked for: arguments in, something JSON can show out. */
@FunctionalInterface
interface Scenario {
    Object run(JSONObject args) throws Exception;
}
