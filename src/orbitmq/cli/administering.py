"""What commands that talk to a cluster share: finding it, errors, confirmation."""

from __future__ import annotations

import asyncio
import difflib
import os
import tomllib
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, cast

import typer

from orbitmq.cli.output import time_text
from orbitmq.client.aio.admin import Admin
from orbitmq.client.keywords import ClientKeywords
from orbitmq.errors import (
    GroupMissingError,
    RemoteError,
    RouteNotFoundError,
    SettingsError,
    TopicBrokersMissingError,
    TopicMissingError,
)
from orbitmq.model.groups import GroupConfig
from orbitmq.model.names import (
    REPLY_TOPIC_SUFFIX,
    is_group_topic,
    is_system_group,
    is_system_topic,
)
from orbitmq.model.routes import MissingBroker
from orbitmq.protocol.codes import ResponseCode

T = TypeVar("T")

LOCAL_NAME_SERVER: Final = "127.0.0.1:9876"
_CONFIG_KEYS: Final = ("namesrv", "access_key", "secret_key", "security_token", "tls")

NameServers = Annotated[
    str | None,
    typer.Option(
        "-n",
        "--namesrv",
        metavar="HOST:PORT;…",
        help="Name servers. Without it: NAMESRV_ADDR, then namesrv in ~/.config/orbitmq.toml, "
        f"then {LOCAL_NAME_SERVER}.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def client_keywords(namesrv: str | None) -> ClientKeywords:
    """The settings of a client, from flag, environment and config file."""
    keywords: ClientKeywords = {**_from_config(config_path())}
    if namesrv:
        keywords["namesrv"] = namesrv
    elif found := os.environ.get("NAMESRV_ADDR") or os.environ.get("ORBITMQ_NAMESRV_ADDR"):
        keywords["namesrv"] = found
    keywords.setdefault("namesrv", LOCAL_NAME_SERVER)
    return keywords


def config_path() -> Path:
    """Where the config file of this user is."""
    named = os.environ.get("ORBITMQ_CONFIG")
    return Path(named) if named else Path("~/.config/orbitmq.toml").expanduser()


def _from_config(path: Path) -> ClientKeywords:
    try:
        content = tomllib.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"cannot read {path}: {error}", hint="correct or delete it") from error
    for name in content:
        if name not in _CONFIG_KEYS:
            nearest = difflib.get_close_matches(name, _CONFIG_KEYS, n=1)
            raise SettingsError(
                f"{path}: unknown key {name!r}",
                hint=f"did you mean {nearest[0]}?"
                if nearest
                else f"known keys: {', '.join(_CONFIG_KEYS)}",
            )
    if isinstance(content.get("namesrv"), list):
        content["namesrv"] = ";".join(map(str, content["namesrv"]))
    # The client checks their types.
    return cast("ClientKeywords", content)


def administer(
    namesrv: str | None,
    work: Callable[[Admin], Coroutine[Any, Any, T]],
    *,
    topic: str | None = None,
) -> T:
    """Run `work` with an admin client; suggests the right name if `topic` is misspelt."""
    return asyncio.run(_administer(client_keywords(namesrv), work, topic))


async def _administer(
    keywords: ClientKeywords,
    work: Callable[[Admin], Coroutine[Any, Any, T]],
    topic: str | None,
) -> T:
    async with Admin(on_missing=_warn_of_missing, **keywords) as admin:
        try:
            return await work(admin)
        except TopicBrokersMissingError:
            raise
        except RemoteError as error:
            if topic is None or error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            raise await _missing(admin, topic) from error


def _warn_of_missing(broker: MissingBroker) -> None:
    typer.secho(
        f"warning: broker {broker.name} is missing since {time_text(broker.since_ms)}: nothing is "
        "shown of what it has, and it gets no changes",
        fg=typer.colors.YELLOW,
        err=True,
    )


async def group_config(admin: Admin, group: str) -> GroupConfig:
    """The settings of a group; suggests the right name if it is misspelt."""
    configs = await admin.groups.configs()
    if group not in configs:
        own = [name for name in configs if not is_system_group(name)]
        nearest = difflib.get_close_matches(group, own, n=1)
        if nearest:
            hint = f"did you mean {nearest[0]}?"
        else:
            hint = f"existing groups: {', '.join(own[:20])}" if own else "there are no groups"
        raise GroupMissingError(f"there is no group {group!r}", hint=hint)
    return configs[group]


async def users_topics(admin: Admin, *, cluster: str | None = None) -> list[str]:
    """The topics that users made: not those of groups, nor those that brokers create."""
    view = await admin.brokers.clusters()
    # Brokers create topics with their own name and that of their cluster.
    own = {
        *view.brokers,
        *view.clusters,
        *(f"{one}{REPLY_TOPIC_SUFFIX}" for one in view.clusters),
    }
    return [
        name
        for name in await admin.topics.names(cluster=cluster)
        if name not in own and not is_system_topic(name) and not is_group_topic(name)
    ]


async def require_target(admin: Admin, topic: str) -> None:
    """Raise if there is no such topic to send to: a send would create one that is misspelt."""
    try:
        await admin.topics.route(topic)
    except TopicBrokersMissingError:
        raise
    except RouteNotFoundError as error:
        raise await _missing(admin, topic, may_be_new=True) from error


async def _missing(admin: Admin, topic: str, *, may_be_new: bool = False) -> TopicMissingError:
    nearest = difflib.get_close_matches(topic, await admin.topics.names(), n=1)
    hint = f"create it: orbitmq topic create {topic}"
    if nearest:
        hint = f"did you mean {nearest[0]}?" + (f" If not, {hint}" if may_be_new else "")
    return TopicMissingError(f"there is no topic {topic!r}", hint=hint)


def some_options(found: dict[str, str], names: list[str] | None) -> dict[str, str]:
    """The named options, or all; suggests the right name for a misspelt one."""
    for name in names or []:
        if name not in found:
            nearest = difflib.get_close_matches(name, found, n=1)
            hint = f"did you mean {nearest[0]}?" if nearest else "name none to see all options"
            raise SettingsError(f"there is no option {name!r}", hint=hint)
    return {name: found[name] for name in names or sorted(found)}


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something that cannot be undone; exits with code 5 without a yes."""
    if yes:
        return
    said = "nothing was done"
    try:
        if typer.confirm(question):
            return
    except typer.Abort as error:
        typer.echo()
        # The same error stands for Ctrl-C and for the end of the input.
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        said += "; there was no answer: give --yes to skip the question"
    typer.secho(said, dim=True)
    raise typer.Exit(5)
