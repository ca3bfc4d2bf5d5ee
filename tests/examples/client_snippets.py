"""The snippets of docs/how-to/clients.md, each on a fresh broker: `python -m tests.examples.client_snippets`.

The text that runs is that of the page. Around it stands what a program needs beside it: imports, a function
to run in, and its end. The libraries are those of `conformance/clients`, whose `run.py` builds them. What the
snippet has sent has to be in the queue, durable, and nothing else.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from amqp_broker.embedding import memory_config, running_broker
from amqp_broker.frames import Message
from tests.examples.snippets import snippet
from tests.support.broker_clients import counts, receive, session_to
from tests.tidy.sources import ROOT

CLIENTS: Final = ROOT / "conformance" / "clients"
BUILD: Final = CLIENTS / ".build"
SECONDS: Final = 600
"""A first build of the Rust program takes a minute and a half on two cores."""

JAVA: Final = """
import jakarta.jms.*;
import org.apache.qpid.jms.JmsConnectionFactory;

public class Snippet {
    public static void main(String[] arguments) throws Exception {
%s
    }
}
"""
GO: Final = """
package main

import (
	"context"
	"log"

	"github.com/Azure/go-amqp"
)

func main() {
	ctx := context.Background()
%s
	if err != nil {
		log.Fatal(err)
	}
	if err := connection.Close(); err != nil {
		log.Fatal(err)
	}
}
"""
RUST: Final = """
use fe2o3_amqp::{Connection, Sender, Session};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
%s
    assert!(outcome.is_accepted(), "{outcome:?}");
    sender.close().await?;
    session.end().await?;
    connection.close().await?;
    Ok(())
}
"""

Commands = list[list[str]]


@attrs.frozen
class Language:
    """How a snippet becomes a program: `title` is how it begins, `client` whose library it uses; `commands`
    writes the program into a folder, and says what builds and runs it.
    """

    name: str
    title: str
    client: str
    commands: Callable[[Path, str], Commands]
    durable: bool = True


def proton(folder: Path, text: str) -> Commands:
    """Python, with python-qpid-proton: this Python's, or that of the client program."""
    (folder / "snippet.py").write_text(text)
    own = BUILD / "proton" / "bin" / "python"
    return [[str(own) if own.exists() else sys.executable, str(folder / "snippet.py")]]


def rhea(folder: Path, text: str) -> Commands:
    """Node, which looks for libraries beside the program."""
    (folder / "snippet.js").write_text(text)
    (folder / "node_modules").symlink_to(CLIENTS / "rhea" / "node_modules")
    return [["node", str(folder / "snippet.js")]]


def qpid_jms(folder: Path, text: str) -> Commands:
    """Java."""
    (folder / "Snippet.java").write_text(JAVA % text)
    library = str(CLIENTS / "qpid-jms" / "target" / "lib" / "*")
    path = os.pathsep.join([str(folder), library])
    return [
        ["javac", "-cp", library, "-d", str(folder), str(folder / "Snippet.java")],
        ["java", "-cp", path, "Snippet"],
    ]


def go_amqp(folder: Path, text: str) -> Commands:
    """Go, as a module with the requirements of the client program."""
    for name in ("go.mod", "go.sum"):
        shutil.copy(CLIENTS / "go-amqp" / name, folder)
    (folder / "main.go").write_text(GO % text)
    return [["go", "build", "-mod=readonly", "-o", str(folder / "snippet"), "."], [str(folder / "snippet")]]


def fe2o3_amqp(folder: Path, text: str) -> Commands:
    """Rust, as a package with the dependencies of the client program, which are compiled already, and a name
    of its own: that program stays what it is.
    """
    for name in ("Cargo.toml", "Cargo.lock"):
        text_of = (CLIENTS / "fe2o3-amqp" / name).read_text(encoding="utf-8")
        (folder / name).write_text(text_of.replace('name = "amqp-interop"', 'name = "snippet"'))
    (folder / "src").mkdir()
    (folder / "src" / "main.rs").write_text(RUST % text)
    target = str(BUILD / "fe2o3-amqp")
    return [["cargo", "run", "--quiet", "--locked", "--target-dir", target, "--bin", "snippet"]]


LANGUAGES: Final = (
    Language("Python", "connection = BlockingConnection", "proton", proton),
    Language("JavaScript", "const container", "rhea", rhea),
    Language("Java", "ConnectionFactory factory", "qpid-jms", qpid_jms),
    Language("Go", "connection, err :=", "go-amqp", go_amqp),
    Language("Rust", "let mut connection", "fe2o3-amqp", fe2o3_amqp, durable=False),
)


def run(language: Language) -> str:
    """Run its snippet on a fresh broker; what is wrong, or nothing."""
    with running_broker(memory_config()) as broker, tempfile.TemporaryDirectory() as folder:
        text = snippet(language.title).at(broker.port).text
        for command in language.commands(Path(folder), text):
            done = subprocess.run(
                command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS
            )
            if done.returncode:
                return f"{command[0]} ended with status {done.returncode}:\n{done.stdout}{done.stderr}"
        if counts(broker, "greetings")[0] != 1:
            return f"{counts(broker, 'greetings')[0]} messages came"
        with session_to(broker) as session:
            (got,) = receive(session.attach_receiver("checks", "greetings", credit=2), 1)
        return problem(Message(got.payload), language)


def problem(message: Any, language: Language) -> str:
    """What is wrong with what was sent."""
    (body,) = message.body_sections()
    said = bytes(body.value).decode() if isinstance(body.value, bytes | memoryview) else body.value
    if said != "hello":
        return f"the message says {said!r}"
    if language.durable and not (message.header and message.header.durable):
        return "the message is not durable"
    return ""


def main(arguments: Sequence[str]) -> int:
    """Those that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", help="names of languages, with commas")
    parser.add_argument("--built", action="store_true", help="the libraries are there already")
    options = parser.parse_args(arguments)
    wanted = options.only.split(",") if options.only else [language.name for language in LANGUAGES]
    chosen = [language for language in LANGUAGES if language.name in wanted]
    if len(chosen) < len(wanted):
        parser.error(f"there are {', '.join(language.name for language in LANGUAGES)}")
    if not options.built:
        names = ",".join(language.client for language in chosen)
        built = [sys.executable, str(CLIENTS / "run.py"), "--build-only", "--keep-going", "--only", names]
        subprocess.run(built, check=True)
    failed = False
    for language in chosen:
        wrong = run(language)
        failed = failed or bool(wrong)
        print(f"{language.name}: {wrong or 'ok'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
