"""What is known of a broker from outside, for all that shows it: the console, `amqp-broker top`, `watch`.

    Login --asks--> `$management`; BrokerView keeps tables, pages and samples; figures and listing make them
    what people look at

Nothing in here is of the broker's inside, and nothing needs an extra.
"""
