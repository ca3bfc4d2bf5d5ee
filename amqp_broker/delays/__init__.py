"""Messages that wait for their time, and then come to their queue."""
