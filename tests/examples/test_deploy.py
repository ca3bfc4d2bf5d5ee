"""The unit of systemd, the container and the pages of the manual say what the program knows."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import tomllib
import urllib.error
from configparser import ConfigParser
from pathlib import Path

import attrs
import pytest

from amqp_broker.command_line import make_parser
from amqp_broker.configuration import HttpConfig, load_configuration
from amqp_broker.embedding import running_broker
from amqp_broker.exit_status import BAD_CONFIGURATION
from amqp_broker.verifiers import SCRAM_SHA_256, make_verifier
from docs.man import pages
from tests.tidy.sources import ROOT

DEPLOY = ROOT / "examples" / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")


def unit(name: str) -> ConfigParser:
    """The sections of a file of systemd."""
    found = ConfigParser(strict=False, interpolation=None)
    found.optionxform = str  # type: ignore[assignment, method-assign]
    found.read(DEPLOY / name)
    return found


def served(arguments: list[str]) -> argparse.Namespace:
    """What `amqp-broker` is told."""
    return make_parser().parse_args(arguments)


def told(line: str) -> list[str]:
    """The array behind a word of the Dockerfile."""
    found = re.search(rf"^{line}.*?(\[.*\])$", DOCKERFILE, re.MULTILINE)
    assert found is not None
    words: list[str] = json.loads(found[1])
    return words


def configuration(folder: Path, port: int = 0) -> str:
    """The example, with a user in it, for a broker in memory, at any free port."""
    text = (DEPLOY / "broker.toml").read_text()
    verifier = str(make_verifier(SCRAM_SHA_256, "word", 4_096, bytes(16)))
    text = text.replace("PUT HERE WHAT amqp-broker user add app PRINTS", verifier)
    file = folder / "broker.toml"
    file.write_text(text)
    return str(file)


def test_the_unit_starts_reloads_and_watches_the_broker() -> None:
    """What systemd does is what the broker understands."""
    service = unit("amqp-broker.service")["Service"]
    assert unit("amqp-broker.service")["Unit"]["StartLimitIntervalSec"] == "0"
    program, *arguments = shlex.split(service["ExecStart"])
    options = served(arguments)
    assert program.endswith("/bin/amqp-broker") and options.command == "serve"
    assert options.data == f"/var/lib/{service['StateDirectory']}" and options.config.startswith("/etc/")
    assert (service["Type"], service["ExecReload"]) == ("notify", "/bin/kill -HUP $MAINPID")
    assert service["RestartPreventExitStatus"] == str(BAD_CONFIGURATION)
    assert service["User"] != "root" and service["WatchdogSec"]


def test_the_socket_is_that_of_the_listener(tmp_path: Path) -> None:
    """Or the broker would refuse it."""
    (listener,) = load_configuration(configuration(tmp_path)).listeners
    assert unit("amqp-broker.socket")["Socket"]["ListenStream"] == f"{listener.host}:{listener.port}"


def test_the_container_is_built_of_everything_that_is_installed() -> None:
    """Each folder that the packages come from, and what builds them."""
    lines = re.findall(r"^COPY (?!--)(.*) \S+$", DOCKERFILE, re.MULTILINE)
    copied = {word for line in lines for word in line.split()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = {*project["tool"]["setuptools"]["package-dir"].values(), project["project"]["readme"], "LICENSE"}
    assert needed | {"pyproject.toml", "setup.py", "build_backend"} <= copied
    assert [word for word in copied if not (ROOT / word).exists()] == []


def test_the_container_runs_without_rights_and_is_told_what_the_example_says(tmp_path: Path) -> None:
    """As a user that is not root; its data and configuration are where the example has them."""
    assert re.findall(r"^USER (\S+)$", DOCKERFILE, re.MULTILINE) == ["10001"]
    program, *arguments = told("ENTRYPOINT")
    assert program.endswith("/bin/amqp-broker") and served(arguments).config == "/etc/amqp-broker/broker.toml"
    config = load_configuration(configuration(tmp_path))
    assert f"VOLUME {config.data_dir}\n" in DOCKERFILE
    assert f"EXPOSE {config.listeners[0].port}\n" in DOCKERFILE
    assert f"{config.http.url}/readyz" in told("HEALTHCHECK")[-1]


def test_the_health_check_of_the_container_tells_a_broker_from_none(tmp_path: Path) -> None:
    """Its program is run as it stands, but for the port."""
    *_, program = told("HEALTHCHECK")
    config = load_configuration(configuration(tmp_path))
    listeners = (attrs.evolve(config.listeners[0], url="amqp://127.0.0.1:0"),)
    http = HttpConfig(url="http://127.0.0.1:0")
    with running_broker(attrs.evolve(config, memory=True, listeners=listeners, http=http)) as broker:
        url = broker.call(lambda running: running.http_url)
        here = program.replace(str(config.http.url), url)
        exec(here)
    with pytest.raises(urllib.error.URLError):
        exec(here)


def test_the_manual_has_every_command() -> None:
    """A page for each program, with every option of each command below it."""
    found = pages()
    names = ("amqp-broker", "amqp-broker-bench", "amqp-broker-pipeline", "amqp-conformance")
    assert [*found] == [f"{name}.1" for name in names]
    page = found["amqp-broker.1"].replace("\\-", "-")
    (commands,) = [each for each in make_parser()._actions if isinstance(each, argparse._SubParsersAction)]
    for name, parser in commands.choices.items():
        assert re.search(rf"amqp-broker {name}|\\fI\\,{name}\\/", page), name
        for action in parser._actions:
            assert [option for option in action.option_strings if option not in page] == [], name
    assert all(text.startswith(".TH ") for text in found.values())
