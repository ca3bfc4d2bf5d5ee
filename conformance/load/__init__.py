"""What measures a broker: a C load client, the tables of docs/explanation, two million messages."""
