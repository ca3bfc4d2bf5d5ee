"""The load tool: `amqp-broker bench URL`, senders and receivers against any AMQP 1.0 broker."""
