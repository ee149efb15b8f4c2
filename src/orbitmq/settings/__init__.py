"""Settings: one table of options, used by loader, help, live update and docs.

This package is the machinery; every other package has a config class of its own:

    @dataclass(frozen=True, slots=True, kw_only=True)
    class ServerConfig:
        listen_port: int = option(9876, low=0, high=65_535, doc="Port to listen on.")

    settings = Settings.load(ServerConfig, file=path, environment=os.environ, flags=flags)
    settings.of(ServerConfig).listen_port

A part takes its own config object, never the whole settings. Where to find what:

    option, option_kinds       a row, how it is declared, its possible types
    properties_file            Java properties text
    environment                ORBITMQ_ variables
    rocketmq_options           options of RocketMQ that have no effect here, or are refused
    option_table               checks each value that was set
    settings                   all sources together, live update, saving
"""

from typing import TYPE_CHECKING

from orbitmq.lazy_names import LazyNames
from orbitmq.settings.option import Option, check_limits, describe, option

if TYPE_CHECKING:
    from orbitmq.settings.rocketmq_options import ServerRole
    from orbitmq.settings.settings import Changed, OptionChange, Settings

__all__ = [
    "Changed",
    "Option",
    "OptionChange",
    "ServerRole",
    "Settings",
    "check_limits",
    "describe",
    "option",
]

# Lazy: only servers need option files and live updates, clients just have options.
_names = LazyNames(
    __name__,
    {
        "Changed": "orbitmq.settings.settings",
        "OptionChange": "orbitmq.settings.settings",
        "ServerRole": "orbitmq.settings.rocketmq_options",
        "Settings": "orbitmq.settings.settings",
    },
)

if not TYPE_CHECKING:
    # Hidden from type checkers, which would accept any name otherwise.
    __getattr__, __dir__ = _names.find, _names.all
