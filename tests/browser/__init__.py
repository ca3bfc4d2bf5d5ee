"""Tests in a real browser, which `.ci/run browser` installs."""
