"""Every error OrbitMQ raises, in one tree.

    OrbitError
    ├── CommandError              a command line that cannot be understood
    ├── SettingsError             a configuration that cannot be used
    │   ├── PropertiesError           text that no properties reader takes
    │   ├── UnknownOptionError        a name that no option has
    │   ├── OptionValueError          a value that the option does not take
    │   ├── UnsupportedOptionError    an option whose promise cannot be kept here
    │   ├── FixedOptionError          an option that takes effect only at start
    │   ├── ForbiddenOptionError      an option on the black list of live updates
    │   └── SettingsProblemsError     several of these, found in one reading
    ├── PackageMissingError       a package that is asked for by name is not installed
    ├── RequestRefusedError       a request that a server answers with a failure code
    ├── StateError                a call that does not fit the state of what it was made on
    ├── ProtocolError             bytes from outside that break the protocol
    │   └── FrameTooLargeError        a frame above the limit
    ├── SignatureError            a request whose signature is missing or wrong
    ├── RegistrationRefusedError  a broker's report that a name server cannot take
    ├── KeyValueError             a change of the key values that cannot be made or kept
    ├── NameRuleError             a name that no topic or no group can have
    ├── ConfigFileError           a file of a broker's tables that cannot be read or written
    ├── TopicRefusedError         a topic that cannot be made, changed or used so
    │   └── TopicMissingError         a topic that the broker does not have
    ├── GroupRefusedError         a group that cannot be made, changed or used so
    │   └── GroupMissingError         a group that the broker does not have
    ├── OffsetRefusedError        an offset that cannot be committed
    ├── HeartbeatRefusedError     a heartbeat above one of the bounds
    ├── SubscriptionError         a subscription that a request relies on is not as it should be
    │   ├── SubscriptionMissingError  no heartbeat has told of it            (retryable)
    │   ├── SubscriptionOutdatedError a newer one has not been told yet      (retryable)
    │   └── SubscriptionConflictError it differs from that of the client's group
    ├── ClusterMissingError       no such cluster or broker
    ├── MessageNotFoundError      no message by that id, or at that place
    ├── MessageError              a message that cannot be stored or sent as it is
    │   └── MessageTypeError          a part of it has a type it cannot have; a TypeError too
    ├── BatchTooLargeError        rows that one Arrow batch cannot hold
    ├── RowError                  a row of Spark that cannot be written; names the row
    ├── ConsumeResultError        a result that no listener of this kind can give
    ├── LocalOffsetsError         a file of offsets kept on this machine that cannot be read
    ├── StreamOffsetsError        offsets in the checkpoint of a Spark query that cannot be read
    ├── FilterError               a filter that cannot be used
    │   ├── FilterSyntaxError         an expression that no filter can be made of
    │   └── FilterEvaluationError     a message that the filter cannot be asked about
    ├── StoreError                a store that cannot do what was asked
    │   ├── StoreLockedError          another process has the directory
    │   ├── StoreFormatError          files of a kind that is not read or written here
    │   ├── StoreDamagedError         flushed bytes that are no longer what they were
    │   ├── StoreFencedError          a failed sync: nothing is acknowledged any more
    │   ├── RecordsDeletedError       what was asked for has been deleted
    │   └── DiskFullError             no room for another file           (retryable)
    ├── TransportError            a call that got no answer              (retryable)
    │   ├── ConnectError              no connection to the address
    │   ├── ConnectionLostError       the connection closed before the answer
    │   ├── CallTimeoutError          no answer in time
    │   ├── TooManyCallsError         the bound on calls under way was reached
    │   ├── WriteBlockedError         the peer does not read what was sent
    │   ├── NameServersUnreachableError  no name server answered
    │   └── AddressServerError        the address server tells of no name servers
    ├── NoQueueError              a topic without a queue for what is asked  (retryable)
    ├── BrokerUnknownError        a broker that no route tells of            (retryable)
    ├── QueueReadError            a queue that could not be read to the end
    ├── DataLossError             messages that should be read and are gone
    ├── SendError                 a send that brought no result; lists its tries (retryable)
    │   ├── SendTimeoutError          its time was over
    │   └── SendRefusedError          another try would end the same
    ├── CommitError               staged rows whose batch is not complete    (retryable)
    └── RemoteError               a peer answered with a failure code
        ├── NotSupportedError         the peer does not know the request code
        │   └── NeedsOrbitError           the request code is OrbitMQ's own
        ├── BusyError                 the peer is over one of its bounds (retryable)
        └── RouteNotFoundError        no name server knows the topic     (retryable)

A message says what happened, with the values; the hint says what to do about it.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class OrbitError(Exception):
    """Root of the tree; carries a hint beside its message."""

    retryable = False

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
    """A line that breaks the rules of properties files, or a file that cannot be taken."""

    def __init__(self, where: str, reason: str, *, hint: str = "") -> None:
        super().__init__(f"{where}: {reason}", hint=hint)


class UnknownOptionError(SettingsError):
    """A name that no option has."""

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
    """A value that the option does not take."""

    def __init__(self, name: str, value: str, *, where: str, allowed: str) -> None:
        super().__init__(f"{where}: {name} cannot be {value!r}", hint=f"it takes {allowed}")
        self.name = name


class UnsupportedOptionError(SettingsError):
    """An option of RocketMQ whose promise cannot be kept here; starting would break it silently."""

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
    """An option on the black list of live updates."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(
            f"{', '.join(names)} may not be changed while the server runs",
            hint="the black list of the server forbids it; set it in the file and restart",
        )
        self.names = names


class SettingsProblemsError(SettingsError):
    """Several problems, found in one reading of the settings."""

    def __init__(self, problems: list[SettingsError]) -> None:
        lines = "".join(f"\n  - {problem}" for problem in problems)
        super().__init__(f"{len(problems)} problems in the settings:{lines}")
        self.problems = problems


class PackageMissingError(OrbitError, ModuleNotFoundError):
    """A package that is asked for by name is not installed."""

    def __init__(self, package: str, *, needed_by: str, extra: str) -> None:
        super().__init__(
            f"{needed_by} needs the package {package}, which is not installed",
            hint=f"pip install 'orbitmq[{extra}]'",
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
    """A call that does not fit the state of what it was made on."""


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


class SignatureError(OrbitError):
    """A request whose signature is missing or wrong."""


class RegistrationRefusedError(OrbitError):
    """A broker's report that a name server cannot take."""


class KeyValueError(OrbitError):
    """A change of the key values that cannot be made or kept."""


class NameRuleError(OrbitError):
    """A name that no topic or no group can have."""


class ConfigFileError(OrbitError):
    """A file of a broker's tables that cannot be read or written."""


class TopicRefusedError(OrbitError):
    """A topic that cannot be made, changed or used so."""


class TopicMissingError(TopicRefusedError):
    """A topic that the broker does not have."""


class GroupRefusedError(OrbitError):
    """A group that cannot be made, changed or used so."""


class GroupMissingError(GroupRefusedError):
    """A group that the broker does not have."""


class OffsetRefusedError(OrbitError):
    """An offset that cannot be committed."""


class HeartbeatRefusedError(OrbitError):
    """A heartbeat above one of the bounds."""


class SubscriptionError(OrbitError):
    """A subscription that a request relies on is not as it should be."""


class SubscriptionMissingError(SubscriptionError):
    """No heartbeat has told of the subscription."""

    retryable = True


class SubscriptionOutdatedError(SubscriptionError):
    """A newer subscription has not been told yet."""

    retryable = True


class SubscriptionConflictError(SubscriptionError):
    """A client subscribes to something else than its group."""


class ClusterMissingError(OrbitError):
    """No cluster or no broker of that name, or of any; `there` are the names there are."""

    def __init__(self, kind: str, name: str = "", *, there: Iterable[str]) -> None:
        names = sorted(there)
        nearest = difflib.get_close_matches(name, names, n=1)
        if nearest:
            hint = f"did you mean {nearest[0]}?"
        elif names:
            hint = f"there are {', '.join(names[:20])}"
        else:
            hint = "no broker has reported to the name servers: orbitmq up starts one"
        super().__init__(f"there is no {kind}{f' {name!r}' if name else ''}", hint=hint)


class MessageNotFoundError(OrbitError):
    """No message by that id, or at that place."""


class MessageError(OrbitError):
    """A message that cannot be stored or sent as it is."""


class MessageTypeError(MessageError, TypeError):
    """A part of a message has a type it cannot have."""

    def __init__(self, part: str, value: object, *, takes: str, hint: str = "") -> None:
        super().__init__(
            f"{part} cannot be of type {type(value).__name__}; it takes {takes}", hint=hint
        )


class BatchTooLargeError(OrbitError):
    """Rows that one Arrow batch cannot hold."""

    def __init__(self, rows: int, *, bytes_max: int) -> None:
        super().__init__(
            f"{rows} rows take more than the {bytes_max} bytes that one batch can hold",
            hint="decode fewer records at a time",
        )


class RowError(OrbitError):
    """A row of Spark that cannot be written, or was not."""


class ConsumeResultError(OrbitError):
    """A result that no listener of this kind can give."""


class LocalOffsetsError(OrbitError):
    """A file of offsets kept on this machine that cannot be read."""


class StreamOffsetsError(OrbitError):
    """Offsets in the checkpoint of a Spark query that cannot be read."""


class FilterError(OrbitError):
    """A filter that cannot be used."""


class FilterSyntaxError(FilterError):
    """An expression that no filter can be made of; `column` counts its characters from 1."""

    def __init__(self, expression: str, column: int, problem: str) -> None:
        # Enough on both sides to find the place; a whole expression may be long.
        start, stop = max(0, column - 101), column + 100
        shown = "…" * (start > 0) + expression[start:stop] + "…" * (stop < len(expression))
        super().__init__(f"filter {shown!r}, column {column}: {problem}")
        self.expression = expression
        self.column = column


class FilterEvaluationError(FilterError):
    """A message that the filter cannot be asked about: a property is not what is compared."""


class StoreError(OrbitError):
    """A store that cannot do what was asked."""


class StoreLockedError(StoreError):
    """Another process has the directory."""


class StoreFormatError(StoreError):
    """Files of a kind that is not read or written here."""


class StoreDamagedError(StoreError):
    """Flushed bytes that are no longer what they were."""


class StoreFencedError(StoreError):
    """A failed sync: nothing is acknowledged any more."""


class RecordsDeletedError(StoreError):
    """What was asked for has been deleted; `start` is where the log or the queue begins now."""

    def __init__(self, message: str, *, start: int, hint: str = "") -> None:
        super().__init__(message, hint=hint or f"go on at {start}, where what is left begins")
        self.start = start


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


class ConnectionLostError(TransportError):
    """The connection closed before the answer came."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"the connection to {address} was lost: {reason}")
        self.address = address


class CallTimeoutError(TransportError):
    """No answer came in time."""

    def __init__(self, address: str, call: str, timeout_ms: float) -> None:
        super().__init__(f"no answer from {address} to {call} within {timeout_ms:.0f} ms")
        self.address = address


class TooManyCallsError(TransportError):
    """The bound on calls under way was reached."""

    def __init__(self, address: str, kind: str, calls_max: int) -> None:
        super().__init__(
            f"{calls_max} {kind} calls are already under way; the one to {address} was not sent",
            hint="slow down, or raise the bound on calls under way",
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
        reasons = "; ".join(
            failure.args[0] if isinstance(failure, OrbitError) else str(failure)
            for failure in failures
        )
        super().__init__(
            f"no name server answers: {reasons}",
            hint="check that one runs there, and the addresses given (namesrv, NAMESRV_ADDR, with Spark "
            "namesrvAddr)",
        )
        self.failures = tuple(failures)


class AddressServerError(TransportError):
    """The address server tells of no name servers."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(
            f"{url} tells of no name servers: {reason}",
            hint="check namesrv_domain and namesrv_subgroup, or give the addresses as namesrv",
        )
        self.url = url


class NoQueueError(OrbitError):
    """A topic without a queue for what is asked."""

    retryable = True


class BrokerUnknownError(OrbitError):
    """A broker that no route tells of."""

    retryable = True

    def __init__(self, broker_name: str, *, topic: str) -> None:
        super().__init__(
            f"no route of topic {topic!r} tells where broker {broker_name!r} is",
            hint="it is down, or has left the cluster",
        )
        self.broker_name = broker_name


class QueueReadError(OrbitError):
    """A queue that could not be read to the end, after all tries."""

    def __init__(
        self, topic: str, broker_name: str, queue_id: int, *, offset: int, why: str
    ) -> None:
        super().__init__(
            f"queue {queue_id} of topic {topic!r} at broker {broker_name!r} could not be read from "
            f"offset {offset} on: {why}"
        )


class DataLossError(OrbitError):
    """Messages that should be read and are gone."""


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


class RouteNotFoundError(RemoteError):
    """No name server knows the topic."""

    retryable = True


class FailedTry(NamedTuple):
    """One try of a send that failed."""

    broker_name: str
    # Empty when it was not known where the broker is.
    address: str
    error: Exception
    took_ms: float

    @property
    def reason(self) -> str:
        """The error without its hint: the hints of all tries would hide the one that counts."""
        return str(self.error.args[0]) if isinstance(self.error, OrbitError) else repr(self.error)

    def __str__(self) -> str:
        return f"{self.broker_name} after {self.took_ms:.0f} ms: {self.reason}"


def _listed(tries: Sequence[FailedTry]) -> str:
    """Tell of all tries, of those that failed alike by the last one."""
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
    """A send that brought no result; `tries` lists what was tried, the last one at the end."""

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
        unsure = "; it may be stored all the same" if may_be_stored else ""
        super().__init__(
            f"{self._what(topic)}, {times} in {elapsed_ms:.0f} ms{unsure}"
            f"{': ' if listed else ''}{listed}",
            hint=hint,
        )
        self.topic = topic
        self.tries = tuple(tries)
        self.elapsed_ms = elapsed_ms
        # A try that got no answer may have reached the broker: sending again may store it twice.
        self.may_be_stored = may_be_stored

    @staticmethod
    def _what(topic: str) -> str:
        return f"a message to topic {topic!r} was not acknowledged"

    @property
    def code(self) -> int | None:
        """The failure code that the last try was answered with, if it was."""
        last = self.tries[-1].error if self.tries else None
        return last.code if isinstance(last, RemoteError) else None


class CommitError(OrbitError):
    """Staged rows whose batch is not complete; asking again completes it."""

    retryable = True


class SendTimeoutError(SendError):
    """The time of a send was over before it had a result."""

    @staticmethod
    def _what(topic: str) -> str:
        return f"a message to topic {topic!r} was not acknowledged in time"


class SendRefusedError(SendError):
    """A send that would end the same however often it is tried."""

    retryable = False

    @staticmethod
    def _what(topic: str) -> str:
        return f"a message to topic {topic!r} was refused"
