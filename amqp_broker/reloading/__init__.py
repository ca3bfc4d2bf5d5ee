"""Reading the configuration again while the broker runs: SIGHUP, and RELOAD of `$management`."""
