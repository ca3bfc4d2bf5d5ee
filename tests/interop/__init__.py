"""Tests against other implementations: they need a C compiler, and are left out of the plain test command."""
