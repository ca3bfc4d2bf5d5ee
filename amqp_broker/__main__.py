"""`python -m amqp_broker` is the command `amqp-broker`."""

import sys

from amqp_broker.command_line import main

if __name__ == "__main__":
    sys.exit(main())
