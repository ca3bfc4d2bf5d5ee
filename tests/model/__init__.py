"""The real broker under random use, held against a reference model of queues and transactions (`machine`);
and a store on disk against the one in memory.

python -m tests.model --examples 2000        # the long profile
"""
