"""Commands as a shell would call them."""

import click
import pytest
from click.testing import CliRunner

from twintrace.cli import cli
from twintrace.model.errors import TwintraceError


@pytest.fixture
def command():
    """`command("compare")(left, right, expect=1)`: what it says, if its exit code is that; of an error (2) its text."""

    def named(*words):
        def call(*arguments, expect):
            done = CliRunner().invoke(cli, [*words, *map(str, arguments)], standalone_mode=False)
            if isinstance(done.exception, TwintraceError):
                assert expect == 2, done.exception
                return str(done.exception)
            if isinstance(done.exception, click.ClickException):
                assert expect == 2, done.exception
                return done.exception.format_message()
            assert done.exception is None, done.exception
            assert done.return_value == expect, done.output
            return done.output

        return call

    return named
