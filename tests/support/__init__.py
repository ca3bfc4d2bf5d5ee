"""What several directories of tests share."""
