"""Where Spark finds the data source `amqp` by itself."""
