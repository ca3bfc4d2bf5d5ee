"""The broker looked at and told what to do by messages: the node `$management`."""
