"""Brokers with one rule broken at a time: does the suite find each of them, and blame nothing else?

`table` has them, `between` breaks the rule on the wire between our broker and the suite, `hunt` runs
scenarios.

    python -m tests.conformance.mutants            # every scenario against each, an hour
    python -m tests.conformance.mutants 'drain*'   # some
"""
