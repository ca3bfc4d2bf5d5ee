"""Traces (OpenTelemetry): what the broker did with messages whose senders trace them. Loaded where
`[tracing]` asks for it.
"""
