"""RabbitMQ's management node for its AMQP 1.0 clients, where `address_forms` has its form: another way to
write requests to `$management`, with the same operations and rights.
"""
