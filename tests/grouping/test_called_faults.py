"""A fault in any function that is called for a request: it is done or not, and one connection ends.

Here it is every tenth function of each request; `python -m tests.grouping --faults` has all.
"""

from __future__ import annotations

import pytest

from tests.grouping.called_faults import KNOWN, Case, places
from tests.grouping.pairs import KINDS
from tests.grouping.stores import MemoryStores

pytestmark = pytest.mark.interpreted

STRIDE = 10


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_in_what_is_called_for_a_request(kind: str) -> None:
    """There is what there would be without the request, or with it; and the broker goes on."""
    for at, steps in enumerate(places(kind)):
        case = Case(steps, MemoryStores())
        assert not case.prepare()
        assert len(case.functions) > 30
        begin = (sum(map(ord, kind)) + at) % STRIDE
        for function in case.functions[begin::STRIDE]:
            found = case.judge(function)
            assert not found or function in KNOWN, f"{function}: {found}"
