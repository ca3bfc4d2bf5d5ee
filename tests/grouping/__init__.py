"""Proof of two laws: grouping is invisible, and a fault has one owner.

A program is a list of steps of up to four connections. It is run one step at a time, with all its steps in
one group, and in random groups; what clients were told and what the store holds has to be the same.

    python -m tests.grouping --programs 10000 --seed 7 --store sqlite

The seam is small: frames go in and come out over memory streams (`peer`), and the broker's store is wrapped
(`held_store`) so that a commit can be held while the next group gathers.
"""
