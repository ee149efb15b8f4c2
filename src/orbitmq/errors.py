"""Every error OrbitMQ raises, in one tree.

    OrbitError
    ├── CommandError              a command line that cannot be understood
    ├── SettingsError             a configuration that cannot be used
    │   ├── PropertiesError           text that is not valid properties text
    │   ├── UnknownOptionError        an option that does not exist
    │   ├── OptionValueError          a value that the option does not accept
    │   ├── UnsupportedOptionError    an option that OrbitMQ cannot honour
    │   ├── FixedOptionError          an option that takes effect only at start
    │   ├── ForbiddenOptionError      an option on the black list of live updates
    │   ├── GuardedOptionError        an option too dangerous for updates by strangers
    │   ├── SettingsProblemsError     several of these, found together
    │   └── PipelineFileError         mistakes in the file of a pipeline
    ├── PipelineError             a query of a pipeline that failed
    ├── ReplayError               a replay that cannot go on
    │   ├── ReplaySourceError         messages of its plan that are gone, or not the same
    │   └── ReplayDoubtError          a chunk that may have been sent long ago
    ├── QueryError                a query of SQL that is refused, or failed
    ├── TableStateError           a table that does not fit the checkpoint of its query
    ├── TableError                a table that a batch cannot be written to
    ├── DatabaseError             a database that refuses a batch, or is gone
    ├── RowValueError             a value that a table cannot store
    ├── SchemaRegistryError       a schema that a registry does not hand out
    ├── PackageMissingError       an optional package that is not installed
    ├── RequestRefusedError       a request that a server answers with a failure code
    ├── StateError                a call on an object in the wrong state
    ├── ProtocolError             bytes from outside that break the protocol
    │   ├── FrameTooLargeError        a frame above the limit
    │   └── BodyTooLargeError         a body above the limit of its request
    ├── SignatureError            a request whose signature is missing or wrong
    ├── RegistrationRefusedError  a broker registration that a name server refuses
    │   └── EpochRefusedError         a master with a smaller epoch than its group had
    ├── KeyValueError             a key value that cannot be changed or stored
    ├── NameRuleError             an invalid name of a topic or group
    ├── ConfigFileError           a broker's table file that cannot be read or written
    ├── MetadataCopyError         tables that a slave could not copy     (retryable)
    ├── PromotionError            a slave that cannot become the master
    ├── TopicRefusedError         a topic that cannot be created, changed or used like this
    │   └── TopicMissingError         a topic that the broker does not have
    ├── GroupRefusedError         a group that cannot be created, changed or used like this
    │   └── GroupMissingError         a group that the broker does not have
    ├── ArchiveRefusedError       an archive that cannot be opened or used like this
    │   ├── ArchiveMissingError       an archive that the broker does not have
    │   └── ArchiveConflictError      marks that are not where an archiver left them
    ├── OffsetRefusedError        an offset that cannot be committed
    ├── HeartbeatRefusedError     a heartbeat above one of the bounds
    ├── SubscriptionError         a request relies on a subscription that does not match
    │   ├── SubscriptionMissingError  no heartbeat has reported it yet       (retryable)
    │   ├── SubscriptionOutdatedError a newer one has not been reported yet  (retryable)
    │   └── SubscriptionConflictError it differs from that of the client's group
    ├── ClusterMissingError       no such cluster or broker
    ├── MessageNotFoundError      no message with that id or at that offset
    ├── MessageError              a message that cannot be stored or sent as it is
    │   └── MessageTypeError          a part of it has the wrong type; also a TypeError
    ├── RecallHandleError         a text that is no recall handle, or not for this message
    ├── BatchTooLargeError        more rows than one Arrow batch can hold
    ├── RowError                  a Spark row that cannot be written; names the row
    ├── ConsumeResultError        a result that this kind of listener cannot return
    ├── LocalOffsetsError         an offset file on this machine that cannot be read
    ├── StreamOffsetsError        offsets in a Spark checkpoint that cannot be read
    ├── FilterError               a filter that cannot be used
    │   ├── FilterSyntaxError         an invalid filter expression
    │   ├── FilterEvaluationError     a message that the filter cannot be evaluated on
    │   ├── FilterMissingError        a filter class that is unknown or not installed
    │   ├── FilterFunctionError       a filter function that failed
    │   └── FilterServerMissingError  a broker without a filter server   (retryable)
    ├── StoreError                a store that cannot do what was asked
    │   ├── StoreLockedError          another process uses the directory
    │   ├── StoreFormatError          files in an unsupported format
    │   ├── StoreDamagedError         flushed bytes that have changed
    │   │   └── QueueDamagedError     ... so that a message of a queue cannot be read
    │   ├── StoreFencedError          a failed sync: nothing more is acknowledged
    │   ├── RecordsDeletedError       what was asked for has been deleted
    │   ├── CopyError                 what a master sent cannot be copied to the log
    │   └── DiskFullError             no room for another file           (retryable)
    ├── TransportError            a call that got no answer              (retryable)
    │   ├── ConnectError              no connection to the address
    │   ├── ConnectionLostError       the connection closed before the answer
    │   ├── CallTimeoutError          no answer in time
    │   ├── TooManyCallsError         too many calls in flight
    │   ├── WriteBlockedError         the peer does not read what was sent
    │   ├── NameServersUnreachableError  no name server answered
    │   └── AddressServerError        the address server returned no name servers
    ├── NoQueueError              a topic without a suitable queue           (retryable)
    │   └── NoMasterError             ... as its brokers have no master
    ├── BrokerUnknownError        a broker that is in no route               (retryable)
    ├── BrokersMissingError       brokers whose queues should be read        (retryable)
    ├── QueueReadError            a queue that could not be read to the end
    ├── DataLossError             messages that should be read but are gone
    ├── SendError                 a send without a result; lists its tries   (retryable)
    │   ├── SendTimeoutError          it ran out of time
    │   └── SendRefusedError          a retry would fail the same way
    ├── RequestTimeoutError       a request by message without a reply in time  (retryable)
    ├── TransactionPendingError   a transaction whose end the broker did not confirm
    ├── TransactionMissingError   a transaction that is not open
    ├── CommitError               staged rows whose batch is not complete    (retryable)
    ├── BatchConflictError        a batch that was decided before, for other rows
    ├── QueryMissingError         a query that no broker has a state of
    └── RemoteError               a peer answered with a failure code
        ├── NotSupportedError         the peer does not know the request code
        │   └── NeedsOrbitError           the request code is OrbitMQ's own
        ├── BusyError                 the peer is over one of its bounds (retryable)
        ├── MasterReplacedError       a name server knows a larger epoch of this master's group
        ├── ReplyNotDeliveredError    nobody waits for the reply to a request
        └── RouteNotFoundError        no name server knows the topic     (retryable)
            └── TopicBrokersMissingError  every broker that had it is missing

A message says what happened, with the values; the hint says what to do.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class OrbitError(Exception):
    """Root of the tree; carries a hint besides its message."""

    retryable = False
    # Whether it occurs in normal operation, so that servers refuse a request without a warning.
    routine = False

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message} ({self.hint})" if self.hint else message


class CommandError(OrbitError):
    """A command line that cannot be understood."""


class SettingsError(OrbitError):
    """A configuration that cannot be used."""


class PropertiesError(SettingsError):
    """Text that is not valid properties text, or a file that cannot be read or written."""

    def __init__(self, where: str, reason: str, *, hint: str = "") -> None:
        super().__init__(f"{where}: {reason}", hint=hint)


class UnknownOptionError(SettingsError):
    """An option that does not exist."""

    def __init__(
        self,
        name: str,
        *,
        where: str,
        nearest: str | None,
        page: str = "docs/configuration.md",
    ) -> None:
        super().__init__(
            f"{where}: unknown option {name!r}",
            hint=f"did you mean {nearest}?" if nearest else f"{page} lists them all",
        )
        self.name = name
        self.nearest = nearest


class OptionValueError(SettingsError):
    """A value that the option does not accept."""

    def __init__(self, name: str, value: str, *, where: str, allowed: str) -> None:
        super().__init__(f"{where}: {name} cannot be {value!r}", hint=f"it takes {allowed}")
        self.name = name


class UnsupportedOptionError(SettingsError):
    """An option of RocketMQ that OrbitMQ cannot honour, and must not ignore silently."""

    def __init__(self, name: str, value: str, *, where: str, reason: str, harmless: str) -> None:
        super().__init__(
            f"{where}: {name}={value} is not supported: {reason}",
            hint=f"remove it, or write {name}={harmless}",
        )
        self.name = name


class FixedOptionError(SettingsError):
    """An option that takes effect only at start."""

    def __init__(self, name: str, *, where: str, current: str, asked: str) -> None:
        super().__init__(
            f"{where}: {name} cannot change from {current!r} to {asked!r}: "
            "it takes effect only at start",
            hint="set it in the file and restart",
        )
        self.name = name


class ForbiddenOptionError(SettingsError):
    """An option that the server's black list excludes from live updates."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(
            f"{', '.join(names)} may not be changed while the server runs",
            hint="it is on the server's black list; set it in the file and restart",
        )
        self.names = names


class GuardedOptionError(SettingsError):
    """Options whose change could do harm, sent to a server that does not allow it."""

    def __init__(self, dangers: dict[str, str]) -> None:
        """Name each option with what its change could do."""
        several = "; ".join(f"{name} can {danger}" for name, danger in dangers.items())
        super().__init__(
            f"refused while the server runs, since anybody who connects could ask for it: {several}",
            hint="set it in the server's file and restart, or start the server with "
            "allowGuardedUpdates=true",
        )
        self.names = sorted(dangers)


class SettingsProblemsError(SettingsError):
    """Several problems, found together in the settings."""

    def __init__(self, problems: list[SettingsError]) -> None:
        lines = "".join(f"\n  - {problem}" for problem in problems)
        super().__init__(f"{len(problems)} problems in the settings:{lines}")
        self.problems = problems


class PipelineFileError(SettingsError):
    """Mistakes in the file of a pipeline; each text begins with its place."""

    def __init__(self, problems: list[str], *, hint: str = "") -> None:
        super().__init__("\n".join(problems), hint=hint)
        self.problems = problems


class PipelineError(OrbitError):
    """A query of a pipeline that failed."""

    def __init__(self, pipeline: str, query: str, reason: str) -> None:
        super().__init__(
            f"pipeline {pipeline}: {query} failed: {reason}",
            hint="once that is mended, run it again: it resumes where it stopped",
        )
        self.query = query


class ReplayError(OrbitError):
    """A replay that cannot go on; what it sent is noted."""


class ReplaySourceError(ReplayError):
    """Messages of the plan of a replay that are gone, or are not the same any more."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            reason,
            hint="nothing of this chunk was sent; another replay, with another --id, plans anew "
            "with what is there",
        )


class ReplayDoubtError(ReplayError):
    """A chunk that was begun so long ago that brokers may have forgotten it."""


class QueryError(OrbitError):
    """A query of SQL that is refused, or failed."""


class TableStateError(OrbitError):
    """A table that does not fit the checkpoint of the query that writes it."""

    def __init__(self, sink: str, target: str, checkpoint: str, problem: str) -> None:
        super().__init__(
            f"{sink} is not written to {target}: {problem} (checkpoint {checkpoint})",
            hint="run it with the state that wrote the table, or move the table away",
        )


class TableError(OrbitError):
    """A table that a batch cannot be written to."""

    def __init__(self, sink: str, target: str, reason: str, *, hint: str = "") -> None:
        super().__init__(f"{sink} is not written to {target}: {reason}", hint=hint)


class DatabaseError(OrbitError):
    """A database that refuses a batch, or is gone."""

    retryable = True

    def __init__(self, target: str, reason: str) -> None:
        super().__init__(f"{target}: {reason}")


class RowValueError(OrbitError):
    """A value that a table cannot store; nothing of its batch is stored."""

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(
            f"column {column}: {reason}",
            hint="an expectation of the source sends such rows into quarantine",
        )


class SchemaRegistryError(OrbitError):
    """A schema that a registry does not hand out."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(
            f"no schema from {url}: {reason}",
            hint="check registry in the pipeline file, and that every machine of Spark reaches it",
        )


class PackageMissingError(OrbitError, ModuleNotFoundError):
    """An optional package that is not installed."""

    def __init__(self, package: str, *, needed_by: str, extra: str) -> None:
        super().__init__(
            f"{needed_by} needs the package {package}, which is not installed",
            hint=f"pip install 'orbitmq[{extra}]', or in a clone: pip install '.[{extra}]'",
        )
        self.name = package


class RequestRefusedError(OrbitError):
    """A request that a server answers with a failure code; clients see the message as remark."""

    def __init__(
        self, code: int, message: str, *, hint: str = "", fields: dict[str, str] | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.fields = fields or {}


class StateError(OrbitError):
    """A call on an object in the wrong state, such as a stopped client."""


class ProtocolError(OrbitError):
    """Bytes from outside that break the protocol."""


class FrameTooLargeError(ProtocolError):
    """A frame announces more bytes than the limit allows."""

    def __init__(self, frame_bytes: int, frame_bytes_max: int) -> None:
        super().__init__(
            f"a frame of {frame_bytes} bytes is above the limit of {frame_bytes_max}",
            hint="send smaller messages or smaller batches",
        )
        self.frame_bytes = frame_bytes


class BodyTooLargeError(ProtocolError):
    """The body of a request is above the limit of its kind."""

    def __init__(self, request: str, body_bytes: int, body_bytes_max: int) -> None:
        super().__init__(
            f"the body of {request} has {body_bytes} bytes, above the limit of {body_bytes_max}",
            hint="name fewer things in one request",
        )


class SignatureError(OrbitError):
    """A request whose signature is missing or wrong."""


class RegistrationRefusedError(OrbitError):
    """A broker registration that a name server refuses."""


class EpochRefusedError(RegistrationRefusedError):
    """The registration of a master with a smaller epoch than its group had."""


class KeyValueError(OrbitError):
    """A key value that cannot be changed or stored."""


class NameRuleError(OrbitError):
    """An invalid name of a topic or group."""


class ConfigFileError(OrbitError):
    """A broker's table file that cannot be read or written."""


class PromotionError(OrbitError):
    """A slave that cannot become the master of its group."""


class MetadataCopyError(OrbitError):
    """Tables that a slave could not copy from its master; they stay as they were."""

    retryable = True

    def __init__(self, address: str, reasons: Mapping[str, OrbitError]) -> None:
        tables = "; ".join(f"{table}: {error}" for table, error in reasons.items())
        super().__init__(
            f"cannot copy from the master {address}: {tables}",
            hint="these tables stay as they were; the next round tries again",
        )
        self.tables = tuple(reasons)


class TopicRefusedError(OrbitError):
    """A topic that cannot be created, changed or used like this."""


class TopicMissingError(TopicRefusedError):
    """A topic that the broker does not have."""


class GroupRefusedError(OrbitError):
    """A group that cannot be created, changed or used like this."""


class GroupMissingError(GroupRefusedError):
    """A group that the broker does not have."""


class ArchiveRefusedError(OrbitError):
    """An archive that cannot be opened or used like this."""


class ArchiveMissingError(ArchiveRefusedError):
    """An archive that the broker does not have."""


class ArchiveConflictError(ArchiveRefusedError):
    """Marks that are not where an archiver left them: another one moved them, or they went back."""


class OffsetRefusedError(OrbitError):
    """An offset that cannot be committed."""


class HeartbeatRefusedError(OrbitError):
    """A heartbeat above one of the bounds."""


class SubscriptionError(OrbitError):
    """A request relies on a subscription that does not match."""


class SubscriptionMissingError(SubscriptionError):
    """No heartbeat has reported the subscription yet."""

    retryable = True


class SubscriptionOutdatedError(SubscriptionError):
    """A newer subscription has not been reported yet: the pull was faster than the heartbeat."""

    retryable = True
    routine = True


class SubscriptionConflictError(SubscriptionError):
    """A client's subscription differs from that of its group."""


class ClusterMissingError(OrbitError):
    """No such cluster or broker, or none at all; `there` lists the names that exist."""

    def __init__(self, kind: str, name: str = "", *, there: Iterable[str]) -> None:
        names = sorted(there)
        nearest = difflib.get_close_matches(name, names, n=1)
        if nearest:
            hint = f"did you mean {nearest[0]}?"
        elif names:
            hint = f"there are {', '.join(names[:20])}"
        else:
            hint = "no broker has registered with the name servers: orbitmq up starts one"
        super().__init__(f"there is no {kind}{f' {name!r}' if name else ''}", hint=hint)


class MasterMissingError(ClusterMissingError):
    """A group whose slaves are there, and whose master is not."""

    def __init__(self, name: str) -> None:
        OrbitError.__init__(
            self,
            f"{name} has no master now",
            hint="orbitmq cluster health shows why; start it, or make a slave the master: orbitmq "
            f"broker promote {name}",
        )


class MessageNotFoundError(OrbitError):
    """No message with that id or at that offset."""


class MessageError(OrbitError):
    """A message that cannot be stored or sent as it is."""


class MessageTypeError(MessageError, TypeError):
    """A part of a message has the wrong type."""

    def __init__(self, part: str, value: object, *, takes: str, hint: str = "") -> None:
        super().__init__(
            f"{part} cannot be of type {type(value).__name__}; it takes {takes}", hint=hint
        )


class RecallHandleError(OrbitError):
    """A text that is no recall handle, or one that cannot be used here."""

    def __init__(self, handle: object, reason: str = "it is not valid", hint: str = "") -> None:
        shown = handle[:60] if isinstance(handle, str) else handle
        super().__init__(
            f"cannot recall by the handle {shown!r:.62}: {reason}",
            hint=hint
            or "pass recall_handle of a send result; only messages with a due time have one",
        )


class BatchTooLargeError(OrbitError):
    """More rows than one Arrow batch can hold."""

    def __init__(self, rows: int, *, bytes_max: int) -> None:
        super().__init__(
            f"{rows} rows take more than the {bytes_max} bytes that one batch can hold",
            hint="decode fewer records at a time",
        )


class RowError(OrbitError):
    """A Spark row that cannot be written, or was not."""


class ConsumeResultError(OrbitError):
    """A result that this kind of listener cannot return."""


class LocalOffsetsError(OrbitError):
    """An offset file on this machine that cannot be read."""


class StreamOffsetsError(OrbitError):
    """Offsets in a Spark checkpoint that cannot be read."""


class FilterError(OrbitError):
    """A filter that cannot be used."""


class FilterSyntaxError(FilterError):
    """An invalid filter expression; `column` counts characters from 1."""

    def __init__(self, expression: str, column: int, problem: str) -> None:
        # Enough on both sides to find the place; a whole expression may be long.
        start, stop = max(0, column - 101), column + 100
        shown = "…" * (start > 0) + expression[start:stop] + "…" * (stop < len(expression))
        super().__init__(f"filter {shown!r}, column {column}: {problem}")
        self.expression = expression
        self.column = column


class FilterEvaluationError(FilterError):
    """A message that the filter cannot be evaluated on: a property has the wrong type."""


class FilterMissingError(FilterError):
    """A filter class that nobody named, or that is not installed on the filter server."""


class FilterFunctionError(FilterError):
    """A filter function that failed, took too long, or cannot be loaded."""

    def __init__(self, name: str, cause: str, *, hint: str = "") -> None:
        super().__init__(f"filter {name}: {cause}", hint=hint)
        self.name = name


class FilterServerMissingError(FilterError):
    """A broker that has no filter server now; one may register at any time."""

    retryable = True

    def __init__(self, topic: str, broker_name: str, filter_class: str) -> None:
        super().__init__(
            f"topic {topic!r} is filtered by {filter_class}, but broker {broker_name!r} has no "
            "filter server",
            hint="start one for this broker: orbitmq filterserver --broker HOST:PORT",
        )


class StoreError(OrbitError):
    """A store that cannot do what was asked."""


class StoreLockedError(StoreError):
    """Another process uses the directory."""


class StoreFormatError(StoreError):
    """Files in an unsupported format."""


class StoreDamagedError(StoreError):
    """Flushed bytes that have changed."""


class QueueDamagedError(StoreDamagedError):
    """A message of a queue that cannot be read: its record has changed, or its queue entry."""

    def __init__(self, message: str, *, queue_offset: int, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.queue_offset = queue_offset


class StoreFencedError(StoreError):
    """A failed sync: nothing more is acknowledged."""


class RecordsDeletedError(StoreError):
    """What was asked for has been deleted; the log or queue now begins at `start`."""

    def __init__(self, message: str, *, start: int, hint: str = "") -> None:
        super().__init__(message, hint=hint or f"resume at {start}, the oldest that is left")
        self.start = start


class CopyError(StoreError):
    """What a master sent cannot be copied to the log."""


class DiskFullError(StoreError):
    """No room for another file."""

    retryable = True


class TransportError(OrbitError):
    """A call that got no answer."""

    retryable = True


class ConnectError(TransportError):
    """No connection to an address."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(
            f"cannot connect to {address}: {reason}",
            hint="check that a server listens there and that the address is reachable",
        )
        self.address = address
        self.reason = reason


class ConnectionLostError(TransportError):
    """The connection closed before the answer arrived."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"the connection to {address} was lost: {reason}")
        self.address = address


class CallTimeoutError(TransportError):
    """No answer arrived in time."""

    def __init__(self, address: str, call: str, timeout_ms: float) -> None:
        super().__init__(f"no answer from {address} to {call} within {timeout_ms:.0f} ms")
        self.address = address


class TooManyCallsError(TransportError):
    """Too many calls are in flight."""

    def __init__(self, address: str, kind: str, calls_max: int) -> None:
        super().__init__(
            f"{calls_max} {kind} calls are already in flight; the one to {address} was not sent",
            hint="slow down, or raise the bound on calls in flight",
        )


class WriteBlockedError(TransportError):
    """The peer does not read what was sent to it."""

    def __init__(self, address: str, waiting_bytes: int) -> None:
        super().__init__(
            f"{address} does not read: {waiting_bytes} bytes wait to be sent to it",
            hint="the peer is stuck or too slow; retry later",
        )


class NameServersUnreachableError(TransportError):
    """No name server answered."""

    def __init__(self, failures: Sequence[Exception]) -> None:
        reasons = "; ".join(map(_short, failures))
        super().__init__(
            f"no name server answers: {reasons}",
            hint="check that one runs there, and namesrv or NAMESRV_ADDR, in Spark namesrvAddr",
        )
        self.failures = tuple(failures)


class AddressServerError(TransportError):
    """The address server returned no name servers."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(
            f"{url} returned no name servers: {reason}",
            hint="check namesrv_domain and namesrv_subgroup, or give the addresses as namesrv",
        )
        self.url = url


class NoQueueError(OrbitError):
    """A topic without a suitable queue."""

    retryable = True


class NoMasterError(NoQueueError):
    """A topic that takes no messages, as its brokers have no master."""

    def __init__(self, topic: str, broker_names: Sequence[str], *, waited_ms: float = 0.0) -> None:
        names = ", ".join(broker_names)
        have = "has" if len(broker_names) == 1 else "have"
        waited = f" after {waited_ms:.0f} ms" if waited_ms else ""
        super().__init__(
            f"topic {topic!r} has no queue that takes messages: {names} {have} no master{waited}",
            hint="start the master again, or make a slave the master: "
            f"orbitmq broker promote {broker_names[0]}",
        )
        self.topic = topic
        self.broker_names = tuple(broker_names)


class BrokerUnknownError(OrbitError):
    """A broker that is in no route."""

    retryable = True

    def __init__(self, broker_name: str, *, topic: str) -> None:
        super().__init__(
            f"the route of topic {topic!r} has no address of broker {broker_name!r}",
            hint="it is down, or has left the cluster",
        )
        self.broker_name = broker_name


class BrokersMissingError(OrbitError):
    """Brokers are missing whose queues should be read."""

    retryable = True

    def __init__(self, missing: str, *, broker_names: Sequence[str], hint: str) -> None:
        super().__init__(missing, hint=hint)
        self.broker_names = tuple(broker_names)


class QueueReadError(OrbitError):
    """A queue that could not be read to the end, after all retries."""

    def __init__(
        self, topic: str, broker_name: str, queue_id: int, *, offset: int, why: str
    ) -> None:
        super().__init__(
            f"queue {queue_id} of topic {topic!r} on broker {broker_name!r} could not be read from "
            f"offset {offset} on: {why}"
        )


class DataLossError(OrbitError):
    """Messages that should be read but are gone."""


class RemoteError(OrbitError):
    """A peer answered with a failure code."""

    def __init__(self, code: int, remark: str, *, call: str, address: str, hint: str = "") -> None:
        super().__init__(
            f"{address} answered {call} with code {code}: {remark or 'no remark'}", hint=hint
        )
        self.code = code
        self.remark = remark


class NotSupportedError(RemoteError):
    """The peer does not know the request code."""


class NeedsOrbitError(NotSupportedError):
    """The request code is OrbitMQ's own and the peer is not OrbitMQ."""


class BusyError(RemoteError):
    """The peer is over one of its bounds."""

    retryable = True


class MasterReplacedError(RemoteError):
    """A name server refused a master, since its group had a larger epoch."""


class ReplyNotDeliveredError(RemoteError):
    """The reply to a request by message, which no requester waits for (any more)."""


class RouteNotFoundError(RemoteError):
    """No name server knows the topic."""

    retryable = True


class TopicBrokersMissingError(RouteNotFoundError):
    """Every broker that had the topic left without unregistering, and is not back."""


class FailedTry(NamedTuple):
    """One try of a send that failed."""

    broker_name: str
    # Empty if the broker's address was not known.
    address: str
    error: Exception
    took_ms: float

    @property
    def reason(self) -> str:
        """The error without its hint: many hints would hide the one that matters."""
        return str(self.error.args[0]) if isinstance(self.error, OrbitError) else repr(self.error)

    def __str__(self) -> str:
        return f"{self.broker_name} after {self.took_ms:.0f} ms: {self.reason}"


def _listed(tries: Sequence[FailedTry]) -> str:
    """Summarise the tries, grouping identical failures."""
    alike: dict[tuple[str, str], list[FailedTry]] = {}
    for tried in tries:
        alike.setdefault((tried.broker_name, tried.reason), []).append(tried)
    return "; ".join(
        str(same[0])
        if len(same) == 1
        else f"{name} {len(same)} times, last after {same[-1].took_ms:.0f} ms: {reason}"
        for (name, reason), same in alike.items()
    )


class SendError(OrbitError):
    """A send without a result; `tries` lists its failed tries, the last one at the end."""

    retryable = True

    def __init__(
        self,
        topic: str,
        tries: Sequence[FailedTry],
        *,
        elapsed_ms: float,
        may_be_stored: bool,
        hint: str,
    ) -> None:
        times = "1 try" if len(tries) == 1 else f"{len(tries)} tries"
        listed = _listed(tries)
        unsure = "; it may be stored nevertheless" if may_be_stored else ""
        super().__init__(
            f"{self._what(topic)}, {times} in {elapsed_ms:.0f} ms{unsure}"
            f"{': ' if listed else ''}{listed}",
            hint=hint,
        )
        self.topic = topic
        self.tries = tuple(tries)
        self.elapsed_ms = elapsed_ms
        # A try without an answer may have reached the broker: sending again may store it twice.
        self.may_be_stored = may_be_stored

    @staticmethod
    def _what(topic: str) -> str:
        return f"a message to topic {topic!r} was not acknowledged"

    @property
    def code(self) -> int | None:
        """The failure code in the answer to the last try, if it got one."""
        last = self.tries[-1].error if self.tries else None
        return last.code if isinstance(last, RemoteError) else None


class RequestTimeoutError(OrbitError):
    """A request by message that got no reply in time."""

    retryable = True

    def __init__(self, topic: str, correlation_id: str, *, timeout_ms: float, sent: bool) -> None:
        super().__init__(
            f"no reply to the request {correlation_id} to topic {topic!r} within "
            f"{timeout_ms:.0f} ms; "
            + ("a broker has stored the request" if sent else "no broker has acknowledged it yet"),
            hint="check that a consumer of the topic runs and replies, or allow more time; a "
            "retry may have it processed twice",
        )
        self.topic = topic
        self.correlation_id = correlation_id
        # Whether a broker has acknowledged the request.
        self.sent = sent


class TransactionPendingError(OrbitError):
    """A transaction whose end the broker did not confirm; a check will decide it."""


class TransactionMissingError(OrbitError):
    """A transaction that is not open at any broker."""


class CommitError(OrbitError):
    """Staged rows whose batch is not complete; a retry completes it."""

    retryable = True


class BatchConflictError(OrbitError):
    """A batch that was decided before, for other rows; a retry does not help."""


class QueryMissingError(OrbitError):
    """A query that no broker has a state of."""


class SendTimeoutError(SendError):
    """A send ran out of time."""

    @staticmethod
    def _what(topic: str) -> str:
        return f"a message to topic {topic!r} was not acknowledged in time"


class SendRefusedError(SendError):
    """A send that would fail the same way however often it is retried."""

    retryable = False

    @staticmethod
    def _what(topic: str) -> str:
        return f"a message to topic {topic!r} was refused"


def _short(failure: Exception) -> str:
    """A failure without its hint, and without words that its context says."""
    if isinstance(failure, ConnectError):
        return f"{failure.address}: {failure.reason}"
    return str(failure.args[0]) if isinstance(failure, OrbitError) else str(failure)
