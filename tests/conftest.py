"""What holds for every test: hypothesis does not judge how busy the machine is."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# CI runs on two shared cores: a slow example says nothing about the code. Blobs make a failure repeatable.
settings.register_profile(
    "house", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("house")
