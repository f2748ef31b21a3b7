"""What a platform lacks, and what is let in beside the standard library."""

import logging

import pytest

from reflexion.sandbox import Limits, judge, layers

ADD, TESTS = "def add(a, b): return a + b", "assert add(1, 2) == 3"
PATIENT = {"wall_s": 60, "cpu_s": 30}


@pytest.fixture
def without_seccomp(monkeypatch):
    available = tuple(layer for layer in layers.available_layers() if layer not in ("seccomp", "network"))
    monkeypatch.setattr(layers, "available_layers", lambda: available)
    layers._say_once.cache_clear()
    yield available
    layers._say_once.cache_clear()


async def test_a_missing_layer_is_said_once_and_named_in_the_verdict(without_seccomp, caplog):
    with caplog.at_level(logging.WARNING, "reflexion.sandbox"):
        verdicts = [await judge(ADD, TESTS, limits=Limits(**PATIENT)) for _ in range(2)]
    assert [verdict.passed for verdict in verdicts] == [True, True]
    assert verdicts[0].layers == without_seccomp
    assert len(caplog.messages) == 1
    assert "seccomp" in caplog.messages[0]


async def test_a_strict_sandbox_runs_nothing_where_a_layer_is_missing(without_seccomp):
    verdict = await judge(ADD, TESTS, limits=Limits(**PATIENT, strict=True))
    assert (verdict.state, verdict.results, verdict.collected) == ("unavailable", (), 1)
    assert "seccomp" in verdict.message
    assert "REFLEXION_SANDBOX_STRICT" in verdict.message


@pytest.mark.skipif(layers.missing_layers() != (), reason="this platform lacks some of the layers")
async def test_a_strict_sandbox_runs_where_none_is_missing():
    assert (await judge(ADD, TESTS, limits=Limits(**PATIENT, strict=True))).passed


NUMPY_CODE = """
import numpy as np
def doubled(n): return np.arange(n) * 2
def mean(a): return a.mean()
def inverse(a): return np.linalg.inv(a)
def three(): return np.int64(3)
def objects(): return np.array([None, 3])
def others(): import hypothesis
"""
NUMPY_TESTS = """
import numpy as np
import pytest
assert doubled(3).tolist() == [0, 2, 4]
assert np.array_equal(doubled(3), [0, 2, 4])
assert doubled(3).dtype == int
assert mean(np.array([1.0, 2.0])) == 1.5
assert np.allclose(inverse(np.eye(2) * 2), np.eye(2) / 2)
assert three() == 3
assert isinstance(three(), np.integer)
assert isinstance(doubled(3), np.ndarray)
def test_others():
    with pytest.raises(ModuleNotFoundError):
        others()
"""


async def test_numpy_can_be_allowed_under_the_default_memory_limit():
    pytest.importorskip("numpy")
    verdict = await judge(NUMPY_CODE, NUMPY_TESTS, limits=Limits(**PATIENT, packages=("numpy",)))
    assert (verdict.state, [result for result in verdict.results if not result.passed]) == ("ran", [])


async def test_a_wrong_array_fails():
    pytest.importorskip("numpy")
    tests = "import numpy as np\nassert np.array_equal(doubled(3), [0, 2, 5])\nassert (doubled(2) == objects()).all()"
    verdict = await judge(NUMPY_CODE, tests, limits=Limits(**PATIENT, packages=("numpy",)))
    assert not any(result.passed for result in verdict.results)


ARRAYS_THAT_AGREE = """
import numpy as np
class Agrees:
    dtype, shape, size, ndim = np.dtype(float), (2,), 2, 1
    def __array_ufunc__(self, *a, **k): return np.True_
    def __array_function__(self, *a, **k): return True
    def __array__(self, *a, **k): return np.array([1.0, 2.0])
    def __eq__(self, other): return np.array([True, True])
    def __sub__(self, other): return np.zeros(2)
    __rsub__ = __sub__
    __array_priority__ = 1000
    __hash__ = None
class Subclass(np.ndarray):
    def __array_ufunc__(self, *a, **k): return np.True_
    def __array_function__(self, *a, **k): return True
    def __eq__(self, other): return np.array([True, True])
def one(): return Agrees()
def other(): return np.array([5.0, 6.0]).view(Subclass)
class Element:
    def __eq__(self, other): return True
    def __sub__(self, other): return 0.0
    __rsub__ = __sub__
def objects(): return np.array([Element(), Element()])
"""


@pytest.mark.parametrize("function", ["one", "other", "objects"])
async def test_an_array_that_agrees_with_anything_passes_no_test(function):
    pytest.importorskip("numpy")
    tests = f"""
import numpy as np
wanted = np.array([1.0, 2.0])
assert np.allclose({function}(), wanted)
assert np.allclose(wanted, {function}())
assert np.array_equal({function}(), wanted)
assert ({function}() == wanted).all()
assert (wanted == {function}()).all()
assert np.all({function}() == wanted)
assert np.abs({function}() - wanted).max() < 1e-9
assert np.isclose({function}(), wanted).all()
assert ({function}().tolist() == [1.0, 2.0]) is True
def test_helper():
    np.testing.assert_allclose({function}(), wanted)
def test_other_helper():
    np.testing.assert_array_equal({function}(), wanted)
"""
    verdict = await judge(ARRAYS_THAT_AGREE, tests, limits=Limits(**PATIENT, packages=("numpy",)))
    assert verdict.state == "ran", verdict
    assert not [result for result in verdict.results if result.passed]


async def test_tests_that_need_what_is_not_allowed_are_not_the_candidates_fault():
    verdict = await judge(ADD, f"import numpy as np\n{TESTS}", limits=Limits(**PATIENT))
    assert (verdict.state, verdict.results, verdict.collected) == ("unavailable", (), 1)
    assert "REFLEXION_SANDBOX_PACKAGES=numpy" in verdict.message
    careful = f"try:\n    import numpy\nexcept ImportError:\n    numpy = None\n{TESTS}"
    assert (await judge(ADD, careful, limits=Limits(**PATIENT))).passed


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"packages": ("nowhere_to_be_found",)}, "nowhere_to_be_found is not installed"),
        ({"packages": ("numpy",), "memory_mb": 80}, "80 MiB"),
    ],
)
async def test_a_package_that_cannot_be_had_is_not_the_candidates_fault(limits, told):
    pytest.importorskip("numpy")
    verdict = await judge(ADD, TESTS, limits=Limits(**PATIENT, **limits))
    assert (verdict.state, verdict.results) == ("unavailable", ())
    assert told in verdict.message
