"""The command `amqp-broker`: serve, and what people do with a broker or its store.

    amqp-broker serve [--config FILE] [--data DIR | --memory] [--listen URL]...
    amqp-broker test-server [--config FILE]
    amqp-broker check | compact | restore | salvage ...    (store_commands.py)
    amqp-broker user add NAME
    amqp-broker user list --config FILE
    amqp-broker doctor [--config FILE]
    amqp-broker list | show | declare | delete | purge | move | ...    (management/command_table.py)
    amqp-broker console [--broker [NAME=]URL]... [--listen URL]
    amqp-broker top [--url URL] [--every SECONDS] [--once] [--json]
    amqp-broker completion SHELL
    amqp-broker bench URL ...
    amqp-broker pipeline archive | compact | audit | report | check-history ...

Listening has to begin within half a second, so everything that a command does not need is imported by the
others.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from amqp_broker.exit_status import BAD_CONFIGURATION, PROGRAM, STOPPED, tell, until_reader_is_gone
from amqp_broker.looking.limits import SAMPLE_PAUSE_S
from amqp_broker.management.command_table import URL, add_commands, add_url
from amqp_broker.store_commands import add_store_commands
from amqp_broker.version import VERSION

if TYPE_CHECKING:
    from amqp_broker.configuration import BrokerConfig

CONSOLE_URL: Final = "http://127.0.0.1:8672"
PACKAGE: Final = "amqp_broker"
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0 stopped or fine, 2 bad configuration or usage, 74, 75,
    141 where whoever reads its output has gone.
    """
    return until_reader_is_gone(partial(_run, list(sys.argv[1:] if argv is None else argv)))


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["bench"]:
        from amqp_broker.bench.command_line import run as run_bench

        return run_bench(arguments[1:])
    if arguments[:1] == ["pipeline"]:
        return _run_pipeline(arguments[1:])
    file: str | None = None
    try:
        options = make_parser().parse_args(arguments)
        file = getattr(options, "config", None)
        status: int = options.run(options)
    except SystemExit as usage:
        return usage.code if isinstance(usage.code, int) else BAD_CONFIGURATION
    except BrokenPipeError:
        raise
    except (Exception, KeyboardInterrupt) as error:
        return tell(error, file)
    return status


def make_parser() -> argparse.ArgumentParser:
    """The options of all commands."""
    parser = argparse.ArgumentParser(prog=PROGRAM, description="A durable AMQP 1.0 broker.")
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {VERSION}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    serve = commands.add_parser(
        "serve", help="run the broker until SIGTERM or SIGINT; SIGHUP has it read its file again"
    )
    serve.add_argument("--config", metavar="FILE", help="TOML configuration")
    place = serve.add_mutually_exclusive_group()
    place.add_argument("--data", metavar="DIR", help="where messages are kept (default ./amqp-broker-data)")
    place.add_argument("--memory", action="store_true", help="keep everything in memory")
    serve.add_argument(
        "--listen",
        metavar="URL",
        action="append",
        help="where to accept connections (default amqp://127.0.0.1:5672; port 0: any free one); repeatable",
    )
    serve.set_defaults(run=_run_serve)

    server = commands.add_parser(
        "test-server", help="a broker in memory for a test suite in another language, until its input ends"
    )
    server.add_argument("--config", metavar="FILE", help="TOML configuration; it listens on any free port")
    server.set_defaults(run=_run_test_server)

    add_store_commands(commands)

    _add_doctor(commands)
    _add_user(commands)
    for asking in add_commands(commands):
        asking.set_defaults(run=_run_management)
    _add_console(commands)
    _add_top(commands)
    completing = commands.add_parser(
        "completion", help="print what has a shell complete these commands (needs amqp-broker[completion])"
    )
    completing.add_argument("shell", metavar="SHELL", help="bash, zsh, fish, ...")
    completing.set_defaults(run=_run_completion)
    commands.add_parser("bench", help="measure a broker (amqp-broker bench --help)", add_help=False)
    commands.add_parser(
        "pipeline", help="archive, audit, report on Spark (amqp-broker pipeline --help)", add_help=False
    )
    return parser


def _add_doctor(commands: Commands) -> None:
    doctor = commands.add_parser(
        "doctor", help="say what a configuration opens to whom, which limits are off, what the disk promises"
    )
    doctor.add_argument("--config", metavar="FILE", help="TOML configuration; without one, the defaults")
    doctor.set_defaults(run=_run_doctor)


def _add_user(commands: Commands) -> None:
    user = commands.add_parser("user", help="verifiers for the configuration; passwords are never stored")
    actions = user.add_subparsers(dest="action", required=True, metavar="ACTION")
    add = actions.add_parser(
        "add", help="print the [[user]] table of a user; the password comes from standard input"
    )
    add.add_argument("name", metavar="NAME")
    add.add_argument(
        "--iterations", type=int, default=None, metavar="N", help="PBKDF2 iterations (default 65536)"
    )
    add.add_argument(
        "--scram-sha-1", action="store_true", help="a verifier for clients that know only SCRAM-SHA-1 as well"
    )
    add.set_defaults(run=_run_user_add)
    listing = actions.add_parser("list", help="print the users of a configuration")
    listing.add_argument("--config", metavar="FILE", required=True)
    listing.set_defaults(run=_run_user_list)


def _add_console(commands: Commands) -> None:
    console = commands.add_parser(
        "console", help="pages to look into brokers and to act by hand (needs amqp-broker[console])"
    )
    console.add_argument(
        "--broker", metavar="[NAME=]URL", action="append",
        help=f"a broker to look at (default {URL}); repeatable",
    )  # fmt: skip
    console.add_argument(
        "--listen", metavar="URL", default=CONSOLE_URL,
        help=f"where browsers connect (default {CONSOLE_URL}; port 0: any free one)",
    )  # fmt: skip
    console.add_argument("--certificate", metavar="FILE", help="PEM file for https, with --key")
    console.add_argument("--key", metavar="FILE", help="PEM file of its key")
    console.add_argument(
        "--name", metavar="HOST", action="append", default=[],
        help="a name that browsers call it by, beside addresses and localhost; repeatable",
    )  # fmt: skip
    console.add_argument(
        "--anonymous", action="store_true",
        help="let in who has no user, also where it does not listen on loopback or has a --name",
    )  # fmt: skip
    console.set_defaults(run=_run_console)


def _run_console(options: argparse.Namespace) -> int:
    try:
        from amqp_broker.console.command import BadOption, run
    except ImportError as error:
        if not _is_foreign(error):
            raise
        return _complain(f"expected the package {error.name}, found none: pip install 'amqp-broker[console]'")
    options.broker = options.broker or [URL]
    try:
        return run(options)
    except BadOption as error:
        return _complain(str(error))


def _add_top(commands: Commands) -> None:
    top = commands.add_parser(
        "top", help="the overview of a broker in a terminal, until `q` (needs amqp-broker[top])"
    )
    top.add_argument(
        "--every", metavar="SECONDS", type=float, default=SAMPLE_PAUSE_S,
        help=f"how often it looks (default {SAMPLE_PAUSE_S:g}), less often where that takes the broker long",
    )  # fmt: skip
    top.add_argument(
        "--once", action="store_true",
        help="print one look, with rates over one pause; so it does without a terminal, and for --json",
    )  # fmt: skip
    add_url(top)
    top.set_defaults(run=_run_top)


def _run_top(options: argparse.Namespace) -> int:
    try:
        from amqp_broker.top.command import run

        return run(options)
    except ImportError as error:
        if not _is_foreign(error):
            raise
        return _complain(f"expected the package {error.name}, found none: pip install 'amqp-broker[top]'")


def _is_foreign(error: ImportError) -> bool:
    return not (error.name or PACKAGE).startswith(PACKAGE)


def _run_management(options: argparse.Namespace) -> int:
    if getattr(options, "data", None) is not None:
        from amqp_broker.store_commands import back_up

        return back_up(options)
    from amqp_broker.management.command import run

    return run(options)


def _run_completion(options: argparse.Namespace) -> int:
    try:
        import shtab
    except ImportError:
        return _complain("expected the package shtab, found none: pip install 'amqp-broker[completion]'")
    if options.shell not in shtab.SUPPORTED_SHELLS:
        return _complain(f"SHELL: expected one of {', '.join(shtab.SUPPORTED_SHELLS)}, got {options.shell!r}")
    print(shtab.complete(make_parser(), options.shell))
    return STOPPED


def _run_pipeline(arguments: list[str]) -> int:
    """The pipeline stands above the shell, which knows no more of it than this name."""
    from importlib import import_module

    status: int = import_module("amqp_broker.pipeline.command_line").run(arguments)
    return status


def _run_serve(options: argparse.Namespace) -> int:
    gc.disable()  # until all is loaded (`amqp_broker.serving`): it would take a tenth of the start
    from amqp_broker.configuration import ConfigurationError

    try:
        config = configuration_of(options)
    except ConfigurationError as error:
        return _complain(str(error), options.config)
    from amqp_broker.serving import serve

    read_again = None if options.config is None else partial(configuration_of, options)
    return serve(config, options.config, read_again)


def _run_test_server(options: argparse.Namespace) -> int:
    from amqp_broker.testing.server import serve

    return serve(options.config)


def configuration_of(options: argparse.Namespace) -> BrokerConfig:
    """The configuration file, or the defaults, with what the command line says instead.  Raises
    ConfigurationError.
    """
    import attrs

    from amqp_broker.configuration import BrokerConfig, ConfigurationError, ListenerConfig, load_configuration

    config = load_configuration(options.config) if options.config is not None else BrokerConfig()
    if options.memory:
        config = attrs.evolve(config, memory=True)
    if options.data is not None:
        try:
            config = attrs.evolve(config, data_dir=options.data, memory=False)
        except ConfigurationError as error:
            raise error.named("--data") from None
    if options.listen:
        try:
            listeners = tuple(ListenerConfig(url=url) for url in options.listen)
        except ConfigurationError as error:
            raise error.named("--listen") from None
        config = attrs.evolve(config, listeners=listeners)
    return config


def _run_doctor(options: argparse.Namespace) -> int:
    from amqp_broker.configuration import BrokerConfig, ConfigurationError, load_configuration
    from amqp_broker.doctor import diagnosis

    try:
        config = load_configuration(options.config) if options.config is not None else BrokerConfig()
        lines = diagnosis(config)
    except ConfigurationError as error:
        return _complain(str(error), options.config)
    print("\n".join(lines))
    return STOPPED


def _run_user_add(options: argparse.Namespace) -> int:
    from amqp_broker.configuration import ConfigurationError
    from amqp_broker.user_commands import add_user

    try:
        print(add_user(options.name, options.iterations, scram_sha_1=options.scram_sha_1), end="")
    except (ConfigurationError, ValueError) as error:
        return _complain(str(error))
    return STOPPED


def _run_user_list(options: argparse.Namespace) -> int:
    from amqp_broker.configuration import ConfigurationError, load_configuration
    from amqp_broker.user_commands import list_users

    try:
        config = load_configuration(options.config)
    except ConfigurationError as error:
        return _complain(str(error), options.config)
    print(list_users(config), end="")
    return STOPPED


def _complain(message: str, file: str | None = None) -> int:
    """One line for a person on standard error; returns the exit status."""
    where = f"{file}: " if file is not None and not message.startswith(file) else ""
    print(f"{PROGRAM}: {where}{message}", file=sys.stderr)
    return BAD_CONFIGURATION


if __name__ == "__main__":
    sys.exit(main())
