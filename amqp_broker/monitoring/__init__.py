"""Health checks and metrics over HTTP, for who watches a broker. Loaded where `[http]` asks for it."""
