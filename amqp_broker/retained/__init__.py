"""Reading what a node keeps, by offset: logs, cursors, the node `$retained`, `$events`."""
