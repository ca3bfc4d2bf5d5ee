"""`amqp-broker serve`: one broker in this process, from its first log line to its exit status.

open the store --> listen --> "listening on amqp://127.0.0.1:PORT" --> SIGTERM, SIGINT or a failed commit
--> close; SIGHUP has the configuration read again
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from amqp_broker.configuration import BrokerConfig, ConfigurationError, Problem, shown
from amqp_broker.exit_status import STOPPED, tell
from amqp_broker.log_setup import configure_logging, load_structlog, logger, tell_suppressed
from amqp_broker.service_manager import ServiceManager, service_manager

if TYPE_CHECKING:
    from amqp_broker.broker import Broker
    from amqp_broker.given_sockets import GivenSockets
    from amqp_broker.reloading.reload import Read

SWITCH_INTERVAL_S: Final = 0.0002
"""The commit thread gets the interpreter back within this time of a busy loop, after each call of SQLite that
let go of it; with Python's 5 ms a commit of 0.1 ms takes 5 and more.
"""
COLLECTOR_THRESHOLDS: Final = (50_000, 20, 100)
"""A backlog of messages is no garbage: with Python's 700 the collector takes a third of the time while it
grows.
"""
HEAP_BLOCK_BYTES: Final = 8 * 1024 * 1024
"""A block of this size that was given back has the C library (glibc) keep twice as much free memory, instead
of returning each read of a megabyte to the system: a third of the time for messages of 1 MiB.
"""
OPEN_FILES: Final = 65_536
"""Two for each of 16,384 connections (limits.max_connections) would do; what the system allows is taken."""

_log = logger("serve")


def serve(config: BrokerConfig, file: str | None = None, read_again: Read | None = None) -> int:
    """Serve until stopped; returns the exit status.  Reasons go to standard error, for people. `read_again`
    reads the file once more, with what the command line says.
    """
    try:
        configure_logging(config)
        _tune_process()
        check_data_dir(config)
        trio.run(_serve, config, read_again, _given_sockets(), service_manager())
    except BaseException as error:
        return tell(error, file, "" if config.memory else str(config.data_dir))
    return STOPPED


def check_data_dir(config: BrokerConfig) -> None:
    """Raise ConfigurationError for a data directory that can be neither used nor made."""
    if config.memory:
        return
    path = Path(config.data_dir).absolute()
    if path.exists() and not path.is_dir():
        allowed = "must be a directory, but is a file"
        raise ConfigurationError(Problem("data_dir", shown(config.data_dir), allowed))
    there = path
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        allowed = f"must be a directory that can be written, but {there} cannot"
        raise ConfigurationError(Problem("data_dir", shown(config.data_dir), allowed))


def _given_sockets() -> GivenSockets | None:
    """Those that systemd opened for this process, if any. Raises ListenError."""
    if "LISTEN_FDS" not in os.environ:
        return None
    from amqp_broker.given_sockets import given_sockets

    return given_sockets()


async def _serve(
    config: BrokerConfig, read_again: Read | None, given: GivenSockets | None, manager: ServiceManager
) -> None:
    from amqp_broker.broker import (
        open_broker,  # the store and the engine are loaded after the arguments are fine
    )

    listening = trio.Event()
    async with trio.open_nursery() as nursery:
        async with open_broker(config, read_again=read_again) as broker:
            await nursery.start(_stop_at_signals, broker)
            if read_again is not None:  # without a file SIGHUP ends it, as the end of its terminal does
                await nursery.start(_reload_at_signals, broker, listening)
            urls = await broker.start_listeners(given)
            for url in urls:
                _announce(f"listening on {url}")
            if broker.http_url is not None:
                _announce(f"health and metrics on {broker.http_url}")
            gc.collect()  # classes are made twice where they have slots
            load_structlog()
            gc.freeze()
            gc.enable()
            await manager.ready(f"listening on {', '.join(urls)}")
            broker.while_reloading = manager.reloading  # which ends with READY=1
            listening.set()
            nursery.start_soon(manager.keep_watched, lambda: broker.writer.stuck_s)
            await broker.stopped()
            await manager.stopping(f"closing {len(broker.connections())} connections")
        nursery.cancel_scope.cancel()
    tell_suppressed()
    _log.info("broker.stopped")


def _announce(line: str) -> None:
    """A line that programs wait for."""
    try:
        print(line, flush=True)
    except BrokenPipeError:  # nobody wants to know, and that is no reason not to serve
        _log.warning("standard_output.closed", line=line)


async def _stop_at_signals(broker: Broker, *, task_status: trio.TaskStatus[None]) -> None:
    """The first signal stops cleanly, a second one at once."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        is_first = True
        async for number in signals:
            grace = broker.config.limits.stop_grace_ms / 1_000 if is_first else 0.0
            _log.info("broker.stopping", signal=signal.Signals(number).name, grace_s=grace)
            broker.stop(grace)
            is_first = False


async def _reload_at_signals(
    broker: Broker, listening: trio.Event, *, task_status: trio.TaskStatus[None]
) -> None:
    """SIGHUP has the file read again, one that comes early as soon as the broker listens. What is wrong with
    it, or with that, the log says: nothing ends.
    """
    with trio.open_signal_receiver(signal.SIGHUP) as signals:
        task_status.started()
        await listening.wait()
        async for _ in signals:
            from amqp_broker.reloading.reload import ReloadRefused

            try:
                await broker.reload()
            except ReloadRefused:
                continue  # the log says why
            except Exception:
                _log.exception("configuration.fault")
            else:
                logger("audit").info(
                    "audit.done", operation="RELOAD", type="broker", identity="self", principal="SIGHUP"
                )


def _tune_process() -> None:
    """Settings of the whole process; an embedded broker leaves them alone."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    bytes(HEAP_BLOCK_BYTES)
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    try:
        import resource
    except ImportError:  # not a POSIX system
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as error:  # then there are fewer connections
            _log.warning("open_files.limited", soft=soft, wanted=wanted, reason=str(error))
