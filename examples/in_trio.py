"""A broker inside a trio program, with a store of its own: `python examples/in_trio.py`."""

from __future__ import annotations

import tempfile

import trio

from amqp_broker import BrokerConfig, open_broker

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"


async def main() -> None:
    """Open the broker, listen on a free port, and talk to it as a client would begin to."""
    with tempfile.TemporaryDirectory() as directory:
        async with open_broker(BrokerConfig(data_dir=directory, listeners=())) as broker:
            url = await broker.serve_tcp("127.0.0.1", 0)
            print(f"the broker listens on {url}")
            stream = await trio.open_tcp_stream("127.0.0.1", int(url.rsplit(":", 1)[1]))
            async with stream:
                await stream.send_all(AMQP_HEADER)
                answer = await stream.receive_some(8)
            print(f"it answers with the header {bytes(answer)!r}")
            assert answer == AMQP_HEADER


if __name__ == "__main__":
    trio.run(main)
