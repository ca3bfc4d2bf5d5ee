"""The scenarios, one module for each topic of the standard; each registers itself (see ``scenario.py``)."""
