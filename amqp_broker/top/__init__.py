"""`amqp-broker top`: the overview of the console in a terminal. A client as any other.

    terminal --keys--> screen --Wanted--> a thread with a Looker --> amqp_broker/looking --> `$management`

Only `screen` needs the extra `top`; a snapshot for programs (`--once`) does without.
"""
