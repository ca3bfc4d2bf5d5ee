"""Messages that come a second time within a while are accepted and not posted again: by their message-id."""
