"""The real broker under random use, held against a reference model of queues.

python -m tests.model --examples 2000        # the long profile
"""
