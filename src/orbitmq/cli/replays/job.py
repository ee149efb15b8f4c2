"""One run of a replay: looks, asks, sends, and says how to resume."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import typer

from orbitmq.cli.administering import administer, confirm, require_target
from orbitmq.cli.output import counted, show_json, time_text
from orbitmq.cli.replays.output import ProgressDisplay, facts_of, show_preview
from orbitmq.client import Admin as BlockingAdmin
from orbitmq.clock import SystemClock
from orbitmq.errors import GroupMissingError, RemoteError, TopicMissingError
from orbitmq.model.names import DEAD_LETTER_PREFIX
from orbitmq.pipelines.replaying.doubts import settle_doubt
from orbitmq.pipelines.replaying.plan import check_same
from orbitmq.pipelines.replaying.planning import make_plan, sample
from orbitmq.pipelines.replaying.selection import Selection, order_of
from orbitmq.pipelines.replaying.sending import Replay
from orbitmq.pipelines.replaying.sources import DeadLetters, Source, TopicMessages
from orbitmq.pipelines.replaying.state import Progress
from orbitmq.pipelines.suggestions import suggestion
from orbitmq.spark import session
from orbitmq.spark.options.write_options import WriteOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from orbitmq.client.aio.admin import Admin
    from orbitmq.client.keywords import ClientKeywords
    from orbitmq.pipelines.replaying.doubts import Choice
    from orbitmq.pipelines.replaying.plan import Plan, Request
    from orbitmq.pipelines.replaying.state import ReplayState

_NOTHING_FOUND: Final = 4
_INTERRUPTED: Final = 130
# How the settings of a client are named as options of Spark's formats.
_SPARK_NAMES: Final = {
    "namesrv": "namesrvAddr",
    "access_key": "accessKey",
    "secret_key": "secretKey",
    "security_token": "securityToken",
    "tls": "tls",
}


def spark_options(keywords: ClientKeywords) -> dict[str, str]:
    """The settings of a client, as options of Spark's formats."""
    options: dict[str, str] = {}
    for name, value in keywords.items():
        options[_SPARK_NAMES[name]] = str(value).lower() if isinstance(value, bool) else str(value)
    return options


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A replay as one command line has it."""

    source: Source
    request: Request
    name: str
    start_ms: int | None
    end_ms: int | None
    read_from: ClientKeywords
    send_to: ClientKeywords
    rate: float | None
    sample: int
    creates: bool
    as_json: bool

    def preview(self, stored: ReplayState | None) -> None:
        """Show what would be sent; nothing is stored."""
        if stored is not None and self._is_done(stored):
            return
        is_missing = self._check_topics()
        with _spark() as spark:
            selection = Selection(spark, self.source, self.request)
            plan = stored.plan if stored is not None else None
            plan = plan or self._plan(selection)
            done = stored.progress if stored is not None else Progress(digest=plan.digest)
            self._show(plan, done, selection, is_missing=is_missing)

    def run(self, state: ReplayState, in_doubt: Choice, *, yes: bool) -> None:
        """Send what is not sent yet, after a look at it."""
        if self._is_done(state):
            return
        is_missing = self._check_topics()
        stopping = threading.Event()
        with _spark() as spark:
            selection = Selection(spark, self.source, self.request)
            plan = state.plan or self._plan(selection)
            if state.plan is not None:
                settle_doubt(state, self.send_to, in_doubt, now_ms=SystemClock().now_ms())
                if self._is_done(state):
                    return
            if not (yes or self.as_json):
                self._show(plan, state.progress, selection, is_missing=is_missing)
            self._confirm(plan, state.progress, yes=yes)
            if is_missing:
                with BlockingAdmin(**self.send_to) as admin:
                    admin.topics.create(self.request.into)
            if state.plan is None:
                state.start(plan)
            self._warn_of_unfinished(state)
            # Spark's own handler, set as it starts, would cancel the chunk.
            with stopped_by_signals(stopping):
                self._send(plan, state, selection, stopping)
        self._show_result(state)

    def _warn_of_unfinished(self, state: ReplayState) -> None:
        if not state.progress.begun_ms or self.as_json:
            return
        is_exactly_once = self.request.guarantee == "exactly-once"
        then = "brokers drop what they have of it" if is_exactly_once else "it is sent again"
        typer.secho(
            f"chunk {state.progress.chunks + 1} was being sent when the last run ended; {then}",
            err=True,
        )

    def _send(
        self, plan: Plan, state: ReplayState, selection: Selection, stopping: threading.Event
    ) -> None:
        with ProgressDisplay(plan, state.progress, is_quiet=self.as_json) as display:
            Replay(
                selection=selection,
                state=state,
                target=self._target(),
                rate=self.rate,
                clock=SystemClock(),
                stops_within=lambda wait_ms: stopping.wait(wait_ms / 1000),
                on_chunk=display.add,
            ).run()

    def _target(self) -> dict[str, str]:
        is_exactly_once = self.request.guarantee == "exactly-once"
        return {
            **spark_options(self.send_to),
            "topic": self.request.into,
            "createTopics": "false",
            "delivery": "exactlyOnce" if is_exactly_once else "atLeastOnce",
        }

    def _is_done(self, state: ReplayState) -> bool:
        """Whether a stored plan is finished; then says so."""
        if state.plan is None:
            return False
        check_same(state.plan, self.request)
        if state.is_finished:
            self._show_result(state, is_before=True)
        return state.is_finished

    def _plan(self, selection: Selection) -> Plan:
        plan = make_plan(
            self.name,
            selection,
            WriteOptions.from_spark(self._target()),
            start_ms=self.start_ms,
            end_ms=self.end_ms,
            rate=self.rate,
            now_ms=SystemClock().now_ms(),
        )
        if not plan.messages:
            typer.secho(
                f"nothing to send: none of {counted(plan.in_range, 'message')} of "
                f"{self.source.name} in this range of time matches"
                if plan.in_range
                else f"nothing to send: {self.source.name} has no messages in this range of time",
                err=True,
            )
            raise typer.Exit(_NOTHING_FOUND)
        return plan

    def _check_topics(self) -> bool:
        """Raise if a topic is missing; returns whether that to send to is, and is created."""
        if isinstance(self.source, DeadLetters):
            administer(self.read_from["namesrv"], self._check_letters)
        elif isinstance(self.source, TopicMessages):
            topic = self.source.topic
            administer(
                self.read_from["namesrv"], lambda admin: admin.topics.route(topic), topic=topic
            )
        try:
            administer(
                self.send_to["namesrv"], lambda admin: require_target(admin, self.request.into)
            )
        except TopicMissingError:
            if not self.creates:
                raise
            return True
        return False

    async def _check_letters(self, admin: Admin) -> None:
        try:
            await admin.topics.route(self.source.topic)
        except RemoteError as error:
            group = self.source.topic.removeprefix(DEAD_LETTER_PREFIX)
            known = [one.group for one in await admin.dead_letters.counts()]
            raise GroupMissingError(
                f"group {group} has no dead letters",
                hint=suggestion(group, known) if known else "no group has any",
            ) from error

    def _show(self, plan: Plan, done: Progress, selection: Selection, *, is_missing: bool) -> None:
        columns, rows = sample(selection, plan.chunks[done.chunks], self.sample)
        facts = facts_of(
            plan,
            done,
            source=self.source.name,
            target=f"topic {self.request.into}" + (", which is created" if is_missing else ""),
            order=order_of(columns),
            rate=self.rate,
        )
        show_preview(facts, rows, as_json=self.as_json)

    def _confirm(self, plan: Plan, done: Progress, *, yes: bool) -> None:
        left = plan.messages - plan.messages_before(done.chunks)
        pace = "" if self.rate is None else f", {self.rate:g} a second at most"
        confirm(
            f"send {counted(left, 'message')} of {self.source.name} into {self.request.into}"
            f"{pace}?",
            yes=yes,
        )

    def _show_result(self, state: ReplayState, *, is_before: bool = False) -> None:
        plan, done = state.plan, state.progress
        assert plan is not None
        sent = plan.messages_before(done.chunks)
        result = {
            "replay": plan.id,
            "into": plan.request.into,
            "messages": plan.messages,
            "sent": sent,
            "rows": done.rows,
            "chunks": len(plan.chunks),
            "chunks_sent": done.chunks,
            "finished": state.is_finished,
            "sent_in_this_run": not is_before,
            "state": str(state.folder),
        }
        if self.as_json:
            show_json(result)
        elif is_before:
            typer.echo(
                f"replay {plan.id} was finished at {time_text(done.finished_ms)}, with "
                f"{counted(plan.messages, 'message')}: nothing is sent (to send them once more, "
                "give it another --id)"
            )
        elif state.is_finished:
            typer.echo(
                f"replay {plan.id}: {counted(plan.messages, 'message')} became "
                f"{counted(done.rows, 'message')} in {plan.request.into}"
            )
        else:
            typer.secho(
                f"stopped: replay {plan.id} sent {sent} of {counted(plan.messages, 'message')}; "
                "the same command sends the rest",
                err=True,
            )
        if not state.is_finished:
            raise typer.Exit(_INTERRUPTED)


@contextmanager
def _spark() -> Iterator[SparkSession]:
    spark = session("orbitmq replay")
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def stopped_by_signals(stopping: threading.Event) -> Iterator[None]:
    """Let the current chunk end at the first signal; the second one ends the program."""

    def stop(number: int, _frame: object) -> None:
        stopping.set()
        signal.signal(number, before[signal.Signals(number)])

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for each in before:
        signal.signal(each, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
