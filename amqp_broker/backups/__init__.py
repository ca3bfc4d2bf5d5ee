"""Backups of a running broker, asked for through `$management`."""
