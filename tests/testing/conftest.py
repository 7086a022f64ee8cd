"""Turn tests round: in a class that says `sabotaged = True`, a test must fail."""

from collections.abc import Iterator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    if not getattr(pyfuncitem.cls, "sabotaged", False):
        return (yield)
    try:
        yield
    except (Exception, pytest.fail.Exception):  # noqa: BLE001 - caught, in whatever way
        return True
    pytest.fail("the saboteur was not caught: this test cannot fail")
