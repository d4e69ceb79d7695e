"""What a test expects of a checker."""


def expect(result, says):
    """Assert that a verdict passes if `says` is None, and else fails with it in its message."""
    assert result.passed == (says is None), result
    assert says is None or says in result.message, result
