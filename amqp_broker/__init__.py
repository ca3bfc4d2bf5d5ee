"""An AMQP 1.0 broker."""
