"""The crash rounds are only worth what their comparison notices: each kind of loss, once."""

import pytest

from crash_load import Writer, compare

BEGAN, ENDED = 1000.2, 1000.4


def writer(model, doubt=None):
    made = Writer(None, "", "w", 1)
    made.model = model
    made.doubt = doubt or {}
    return made


def body(n, stamp=1, **more):
    return {"id": f"w-{n}", "pk": "w/0", "stamp": stamp, **more}


def stored(n, stamp=1, ts=999, **more):
    return {**body(n, stamp, **more), "_ts": ts, "_etag": "e", "_rid": "r"}


def kept(*bodies):
    return {each["id"]: {"_ts": 999, **each} for each in bodies}


@pytest.mark.parametrize(
    "model, doubt, items",
    [
        (kept(body(1), body(2)), {}, [stored(1), stored(2)]),
        # the unanswered request happened, or not, as a whole
        (kept(body(1)), {"w-1": body(1, 2)}, [stored(1, 2)]),
        (kept(body(1)), {"w-1": body(1, 2)}, [stored(1)]),
        (kept(body(1)), {"w-1": None, "w-2": body(2)}, [stored(2)]),
        (kept(body(1)), {"w-1": None, "w-2": body(2)}, [stored(1)]),
        # expired, or on the edge of it
        (kept(body(1, ttl=1)), {}, []),
        (kept(body(1, ttl=2)), {}, [stored(1, ttl=2)]),
        ({"w-1": {**body(1, ttl=1), "_ts": 1000}}, {}, [stored(1, ttl=1, ts=1000)]),
    ],
)
def test_what_is_right_is_right(model, doubt, items):
    assert compare([writer(model, doubt)], items, BEGAN, ENDED) == []


@pytest.mark.parametrize(
    "model, doubt, items, complaint",
    [
        (kept(body(1), body(2)), {}, [stored(1)], "lost"),
        (kept(body(1, 2)), {}, [stored(1, 1)], "acknowledged was"),
        ({}, {}, [stored(1)], "absence was acknowledged"),
        ({}, {}, [{**stored(1), "id": "stranger-1"}], "nobody wrote it"),
        (kept(body(1)), {}, [stored(1), stored(1)], "twice"),
        (kept(body(1)), {"w-1": None, "w-2": body(2)}, [stored(1), stored(2)], "half"),
        (kept(body(1)), {"w-1": None, "w-2": body(2)}, [], "half"),
        (kept(body(1)), {"w-1": body(1, 2)}, [stored(1, 3)], "half"),
        (kept(body(1, ttl=1)), {}, [stored(1, ttl=1)], "is back"),
        (kept(body(1, ttl=1000)), {}, [], "lost"),
    ],
)
def test_what_is_wrong_is_noticed(model, doubt, items, complaint):
    complaints = compare([writer(model, doubt)], items, BEGAN, ENDED)
    assert any(complaint in each for each in complaints), complaints


def test_models_go_on_from_what_is_there():
    one = writer(kept(body(1), body(2, ttl=1)), {"w-3": body(3)})
    assert compare([one], [stored(1), stored(3)], BEGAN, ENDED) == []
    assert sorted(one.model) == ["w-1", "w-3"]
    assert one.doubt == {}
