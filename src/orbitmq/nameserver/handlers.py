"""What the name server answers: a handler per request code."""

from __future__ import annotations

import logging
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orbitmq import java_json
from orbitmq.errors import RegistrationRefusedError
from orbitmq.java_json import Dialect
from orbitmq.model.routes import MASTER_ID, TopicRoute
from orbitmq.model.versions import V4_9_4, DataVersion
from orbitmq.nameserver.broker_registry import BrokerKey, Report
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.route_view import in_zone
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.key_values import (
    ORDER_TOPIC_NAMESPACE,
    DeleteKeyValue,
    GetKeyValue,
    KeyValueReply,
    KeyValueTable,
    ListKeyValues,
    PutKeyValue,
)
from orbitmq.protocol.requests.registration import (
    BrokerHeartbeat,
    ForgetEpoch,
    ForgetEpochReply,
    QueryDataVersion,
    QueryDataVersionReply,
    RegisterBroker,
    RegisterBrokerReply,
    UnregisterBroker,
    decode_register_body,
)
from orbitmq.protocol.requests.routing import (
    ZONE_MODE,
    ZONE_NAME,
    AddTopicRoute,
    AddWritePermission,
    AddWritePermissionReply,
    BrokerGroupReply,
    BrokerMembers,
    DeleteTopicRoute,
    GetBrokerGroup,
    GetClusterView,
    GetRoute,
    ListClusterTopics,
    ListTopics,
    TopicList,
    WipeWritePermission,
    WipeWritePermissionReply,
)
from orbitmq.transport.config import ServerConfig
from orbitmq.transport.option_requests import OptionRequests
from orbitmq.transport.request_loop import starts_at_once

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.clock import Clock
    from orbitmq.nameserver.broker_registry import BrokerRegistry
    from orbitmq.nameserver.key_values import KeyValueStore
    from orbitmq.nameserver.master_epochs import MasterEpochs
    from orbitmq.nameserver.route_view import RouteView
    from orbitmq.protocol.command import Command
    from orbitmq.settings import Settings
    from orbitmq.transport.connection import Connection
    from orbitmq.transport.request_loop import Handler

log = logging.getLogger(__name__)

_CRC_MASK: Final = 0x7FFFFFFF
# Perf: on Python 3.11 access to an enum member takes 0.1 µs, to a module's name 0.01.
_STANDARD: Final = Dialect.STANDARD
_FASTJSON: Final = Dialect.FASTJSON
# Options that live updates may never change, whatever the configured black list says.
_ALWAYS_FORBIDDEN: Final = frozenset(
    {"configBlackList", "configStorePath", "epochsPath", "kvConfigPath", "rocketmqHome"}
)


class Handlers:
    """The handlers of all requests to a name server."""

    def __init__(
        self,
        *,
        settings: Settings,
        config_path: Path,
        registry: BrokerRegistry,
        routes: RouteView,
        key_values: KeyValueStore,
        epochs: MasterEpochs,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._options = OptionRequests(
            settings,
            file=config_path,
            forbidden=lambda: _ALWAYS_FORBIDDEN.union(self._config.config_black_list),
            allow_guarded=settings.of(ServerConfig).allow_guarded_updates,
        )
        self._registry = registry
        self._routes = routes
        self._key_values = key_values
        self._epochs = epochs
        self._clock = clock
        self._started_ms = clock.now_ms()

    def by_code(self) -> Mapping[int, Handler]:
        """The handler of each request code."""
        return {
            RequestCode.PUT_KV_CONFIG: self.put_key_value,
            RequestCode.GET_KV_CONFIG: self.get_key_value,
            RequestCode.DELETE_KV_CONFIG: self.delete_key_value,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self.list_key_values,
            RequestCode.REGISTER_BROKER: self.register_broker,
            RequestCode.UNREGISTER_BROKER: self.unregister_broker,
            RequestCode.BROKER_HEARTBEAT: self.broker_heartbeat,
            RequestCode.QUERY_DATA_VERSION: self.query_data_version,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self.get_route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self.get_cluster_view,
            RequestCode.GET_BROKER_MEMBER_GROUP: self.get_broker_group,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self.wipe_write_permission,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self.add_write_permission,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self.delete_topic,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self.add_topic_route,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.list_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self.list_cluster_topics,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.list_system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self.list_unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self.list_unit_subscribed_topics,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self.list_unit_subscribed_plain_topics,
            RequestCode.FORGET_EPOCH: self.forget_epoch,
            RequestCode.UPDATE_NAMESRV_CONFIG: self._options.update,
            RequestCode.GET_NAMESRV_CONFIG: self._options.show,
        }

    @property
    def _config(self) -> NameServerConfig:
        return self._settings.of(NameServerConfig)

    # --- key values ---------------------------------------------------------------------------

    async def put_key_value(self, _: Connection, request: Command) -> Command:
        """Set one key of a namespace."""
        asked = PutKeyValue.decode(request.fields)
        await self._key_values.put(asked.namespace, asked.key, asked.value)
        return request.reply()

    def get_key_value(self, _: Connection, request: Command) -> Command:
        """Read one key of a namespace."""
        asked = GetKeyValue.decode(request.fields)
        value = self._key_values.get(asked.namespace, asked.key)
        if value is None:
            return request.reply(
                code=ResponseCode.QUERY_NOT_FOUND,
                remark=f"No config item, Namespace: {asked.namespace} Key: {asked.key}",
            )
        return request.reply(KeyValueReply(value=value))

    async def delete_key_value(self, _: Connection, request: Command) -> Command:
        """Delete one key of a namespace."""
        asked = DeleteKeyValue.decode(request.fields)
        await self._key_values.delete(asked.namespace, asked.key)
        return request.reply()

    def list_key_values(self, _: Connection, request: Command) -> Command:
        """Read every key of a namespace."""
        asked = ListKeyValues.decode(request.fields)
        keys = self._key_values.namespace(asked.namespace)
        if keys is None:
            return request.reply(
                code=ResponseCode.QUERY_NOT_FOUND,
                remark=f"No config item, Namespace: {asked.namespace}",
            )
        return request.reply(body=java_json.encode(KeyValueTable(table=keys)))

    # --- brokers ------------------------------------------------------------------------------

    @starts_at_once
    async def register_broker(self, connection: Connection, request: Command) -> Command:
        """Apply a broker's report about itself and its topics."""
        asked = RegisterBroker.decode(request.fields)
        if asked.body_crc and zlib.crc32(request.body) & _CRC_MASK != asked.body_crc:
            return request.reply(code=ResponseCode.SYSTEM_ERROR, remark="crc32 not match")
        body = decode_register_body(
            request.body, compressed=asked.compressed, version=request.version
        )
        report = Report(
            key=BrokerKey(asked.cluster_name, asked.broker_address),
            broker_name=asked.broker_name,
            broker_id=asked.broker_id,
            ha_address=asked.ha_address,
            data_version=body.topic_table.data_version,
            read_topics=body.read_topics,
            connection=connection,
            zone=request.fields.get(ZONE_NAME),
            silence_ms_max=asked.heartbeat_timeout_ms,
            enable_acting_master=asked.enable_acting_master,
            filter_servers=body.filter_servers,
            queue_mappings=body.topic_table.queue_mappings,
        )
        await self._keep_epoch(report, connection)
        config = self._config
        master = self._registry.register(
            report,
            now_ms=self._clock.monotonic_ms(),
            silence_ms_max=config.broker_silence_ms_max,
            delete_missing_topics=config.delete_missing_topics,
        )
        order = None
        if config.order_topics_to_brokers:
            order = self._key_values.namespace(ORDER_TOPIC_NAMESPACE)
        return request.reply(
            RegisterBrokerReply(ha_address=master.ha_address, master_address=master.address),
            body=java_json.encode(KeyValueTable(table=order)) if order is not None else b"",
        )

    async def _keep_epoch(self, report: Report, connection: Connection) -> None:
        """Have a master's new epoch on disk before anybody sees the master."""
        cluster, epoch = report.key.cluster, report.data_version.state_version
        if report.broker_id != MASTER_ID or epoch <= self._epochs.of(cluster, report.broker_name):
            return
        self._registry.check(report)
        await self._epochs.raise_to(cluster, report.broker_name, epoch)
        if connection.closed:
            # What a closed connection reported would be removed only after two minutes.
            raise RegistrationRefusedError(f"the connection of {report.key} closed meanwhile")
        log.info(
            "epoch of a master name=%s cluster=%s address=%s epoch=%d",
            report.broker_name,
            cluster,
            report.key.address,
            epoch,
        )

    def unregister_broker(self, _: Connection, request: Command) -> Command:
        """Remove a broker that is shutting down."""
        asked = UnregisterBroker.decode(request.fields)
        self._registry.unregister(
            BrokerKey(asked.cluster_name, asked.broker_address),
            asked.broker_name,
            remember=self._config.remember_unregistered,
        )
        return request.reply()

    def broker_heartbeat(self, _: Connection, request: Command) -> Command:
        """Record that a broker is alive."""
        asked = BrokerHeartbeat.decode(request.fields)
        self._registry.touch(
            BrokerKey(asked.cluster_name, asked.broker_address), now_ms=self._clock.monotonic_ms()
        )
        return request.reply()

    async def forget_epoch(self, connection: Connection, request: Command) -> Command:
        """Forget the epoch of a broker group, so that a master of any epoch is accepted."""
        asked = ForgetEpoch.decode(request.fields)
        epoch = await self._epochs.forget(asked.cluster_name, asked.broker_name)
        if epoch:
            log.warning(
                "epoch forgotten broker=%s cluster=%s epoch=%d peer=%s",
                asked.broker_name,
                asked.cluster_name,
                epoch,
                connection.address,
            )
        return request.reply(ForgetEpochReply(epoch=Long(epoch)))

    def query_data_version(self, _: Connection, request: Command) -> Command:
        """Tell a broker whether its version is new to us, and record that it is alive."""
        asked = QueryDataVersion.decode(request.fields)
        key = BrokerKey(asked.cluster_name, asked.broker_address)
        theirs = java_json.decode(request.body, DataVersion)
        if asked.broker_id == MASTER_ID and theirs.state_version < self._registry.largest_epoch(
            key, asked.broker_name or ""
        ):
            # Its registration, which comes next, is refused with the reason.
            return request.reply(QueryDataVersionReply(changed=True))
        self._registry.touch(key, now_ms=self._clock.monotonic_ms())
        ours = self._registry.version_of(key)
        return request.reply(
            QueryDataVersionReply(changed=ours != theirs),
            body=java_json.encode(ours) if ours is not None else b"",
        )

    def get_cluster_view(self, _: Connection, request: Command) -> Command:
        """Show every broker."""
        asked = GetClusterView.decode(request.fields)
        return request.reply(
            body=self._routes.cluster_view_body(
                with_missing=bool(asked.with_missing_brokers), with_epochs=bool(asked.with_epochs)
            )
        )

    def get_broker_group(self, _: Connection, request: Command) -> Command:
        """Show the addresses of one broker group."""
        asked = GetBrokerGroup.decode(request.fields)
        members = BrokerMembers(
            addresses=self._routes.addresses_of(asked.broker_name),
            name=asked.broker_name,
            cluster=asked.cluster_name,
        )
        return request.reply(body=java_json.encode(BrokerGroupReply(members=members)))

    def wipe_write_permission(self, connection: Connection, request: Command) -> Command:
        """Stop sends to a broker."""
        asked = WipeWritePermission.decode(request.fields)
        count = self._registry.wipe_write_permission(asked.broker_name)
        log.info(
            "write permission wiped broker=%s topics=%d peer=%s",
            asked.broker_name,
            count,
            connection.address,
        )
        return request.reply(WipeWritePermissionReply(topic_count=count))

    def add_write_permission(self, connection: Connection, request: Command) -> Command:
        """Allow sends to a broker again."""
        asked = AddWritePermission.decode(request.fields)
        count = self._registry.add_write_permission(asked.broker_name)
        log.info(
            "write permission added broker=%s topics=%d peer=%s",
            asked.broker_name,
            count,
            connection.address,
        )
        return request.reply(AddWritePermissionReply(topic_count=count))

    # --- topics -------------------------------------------------------------------------------

    def get_route(self, _: Connection, request: Command) -> Command:
        """Show where a topic is."""
        asked = GetRoute.decode(request.fields)
        config = self._config
        if config.wait_before_routes:
            ready_ms = self._started_ms + config.wait_seconds * 1000
            if self._clock.now_ms() < ready_ms:
                return request.reply(code=ResponseCode.SYSTEM_ERROR, remark="name server not ready")
        order_config = None
        if config.order_topics:
            order_config = self._key_values.get(ORDER_TOPIC_NAMESPACE, asked.topic)
        # Compat: peers before 4.9.4, and Go, accept broker ids only as unquoted keys.
        wants_standard = request.version >= V4_9_4 or asked.accept_standard_json_only
        dialect = _STANDARD if wants_standard else _FASTJSON
        # Compat: official clients do not ask for missing brokers, and get what RocketMQ replies.
        with_missing = bool(asked.with_missing_brokers)
        zone = request.fields.get(ZONE_NAME)
        if zone and request.fields.get(ZONE_MODE, "").lower() == "true":
            route = self._routes.route(
                asked.topic,
                order_config=order_config,
                acting_master=config.acting_master,
                with_missing=with_missing,
            )
            body = java_json.encode(in_zone(route, zone), dialect) if route is not None else None
        else:
            body = self._routes.route_body(
                asked.topic,
                dialect,
                order_config=order_config,
                acting_master=config.acting_master,
                with_missing=with_missing,
            )
        if body is None:
            # Compat: producers fall back to the default topic on exactly this code.
            return request.reply(
                code=ResponseCode.TOPIC_NOT_EXIST,
                remark=f"No topic route info in name server for the topic: {asked.topic}",
            )
        return request.reply(body=body)

    def add_topic_route(self, _: Connection, request: Command) -> Command:
        """Add queues to the route of a topic."""
        asked = AddTopicRoute.decode(request.fields)
        if request.body:
            self._registry.add_queues(
                asked.topic, java_json.decode(request.body, TopicRoute).queues
            )
        return request.reply()

    def delete_topic(self, _: Connection, request: Command) -> Command:
        """Remove the route of a topic."""
        asked = DeleteTopicRoute.decode(request.fields)
        self._registry.delete_topic(asked.topic, asked.cluster_name)
        return request.reply()

    def list_topics(self, _: Connection, request: Command) -> Command:
        """List every topic."""
        if not self._config.list_all_topics:
            return _disabled(request)
        asked = ListTopics.decode(request.fields)
        return request.reply(
            body=self._routes.topics_body(with_missing=bool(asked.with_missing_brokers))
        )

    def list_cluster_topics(self, _: Connection, request: Command) -> Command:
        """List the topics of one cluster."""
        if not self._config.list_topics:
            return _disabled(request)
        asked = ListClusterTopics.decode(request.fields)
        return request.reply(body=self._routes.cluster_topics_body(asked.cluster))

    def list_system_topics(self, _: Connection, request: Command) -> Command:
        """List the topics that brokers create for themselves."""
        names, address = self._routes.system_topics()
        return _topic_list(request, names, broker_address=address)

    def list_unit_topics(self, _: Connection, request: Command) -> Command:
        """List the topics of units."""
        if not self._config.list_topics:
            return _disabled(request)
        return _topic_list(request, self._routes.unit_topics())

    def list_unit_subscribed_topics(self, _: Connection, request: Command) -> Command:
        """List the topics that units subscribe to."""
        if not self._config.list_topics:
            return _disabled(request)
        return _topic_list(request, self._routes.unit_subscribed_topics())

    def list_unit_subscribed_plain_topics(self, _: Connection, request: Command) -> Command:
        """List the topics outside units that units subscribe to."""
        if not self._config.list_topics:
            return _disabled(request)
        return _topic_list(request, self._routes.unit_subscribed_topics(plain_only=True))


def _topic_list(
    request: Command, topics: list[str], *, broker_address: str | None = None
) -> Command:
    return request.reply(
        body=java_json.encode(TopicList(topics=topics, broker_address=broker_address))
    )


def _disabled(request: Command) -> Command:
    return request.reply(code=ResponseCode.SYSTEM_ERROR, remark="disable")
