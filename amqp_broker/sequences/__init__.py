"""Ordered, exactly-once streams: judged, acknowledged, owned; a client's helper."""
