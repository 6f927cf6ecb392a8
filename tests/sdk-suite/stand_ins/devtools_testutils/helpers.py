"""Whether the tests run against a service; the suite's configuration sets it."""


def is_live():
    return is_live._cache


is_live._cache = True
