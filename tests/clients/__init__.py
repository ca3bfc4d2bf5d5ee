"""The runner of the real clients; the clients themselves need other toolchains and a broker."""
