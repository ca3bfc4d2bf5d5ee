"""The real broker under random use, held against reference models: of queues (`machine`), and of queues with
transactions (`transactional_machine`).

python -m tests.model --examples 2000        # the long profile
"""
