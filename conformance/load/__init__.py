"""What measures a broker: a C load client, the table of the README, the backlog of two million messages."""
