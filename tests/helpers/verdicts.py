"""Provide the assertion on a checker's verdict."""


def expect(result, says):
    """Assert that a verdict passes if `says` is None, else that it fails with this message."""
    assert result.passed == (says is None), result
    assert says is None or says in result.message, result
