"""`amqp-broker console`: pages to look into brokers, and to act by hand. A process of its own.

    browser <--HTTP--> server --Visit--> pages, acting --Login--> the user's own connection --> `$management`
                                           |
                                           `--BrokerView--> what was read of a broker, for all who look at it

It knows brokers as any client does: nothing in here is of the broker's inside. Rights are the broker's: what
a user may not do is asked for all the same, and the refusal is shown.
"""
