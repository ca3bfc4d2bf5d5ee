"""A hundred tests of an asyncio program that uses the client of this package."""
