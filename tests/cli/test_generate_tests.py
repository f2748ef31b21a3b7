"""`reflexion run --generate-tests` says whose tests they were."""

import json

import pytest

TESTS = "assert add(1, 2) == 3\nassert add(0, 0) == 0\nassert add(1, 1) is not None"


@pytest.fixture
def model(model, monkeypatch):
    monkeypatch.setenv("REFLEXION_TEST_TIMEOUT_S", "60")
    model.script("m", "```python\ndef add(a, b):\n    return a + b\n```", TESTS)
    return model


def test_a_pass_is_marked_as_advisory_with_the_origin_of_the_tests(reflexion, model):
    done = reflexion("run", "Write add(a, b).", "--generate-tests")
    assert done.exit_code == 0
    assert "(advisory, by generated_tests)" in done.stdout
    assert "Passed 2 of 2 tests that the model wrote itself, 1 rejected." in done.stdout
    assert "1.00 ~" in done.stdout
    assert "✓" not in done.stdout
    assert model.count == 2


def test_json_holds_each_test_with_its_origin(reflexion, model):
    done = reflexion("run", "Write add(a, b).", "--generate-tests", "--json")
    result = json.loads(done.stdout)
    assert (result["advisory"], result["attempts"][0]["evaluator"]) == (True, "generated_tests")
    assert [test["origin"] for test in result["own_tests"]] == ["model"] * 3
    assert [bool(test["rejected"]) for test in result["own_tests"]] == [False, False, True]


def test_without_the_option_nobody_writes_tests(reflexion, model):
    done = reflexion("run", "Write add(a, b).", "--max-attempts", "1", "--json")
    assert json.loads(done.stdout)["own_tests"] == []
    assert "You write tests" not in model.requests[1].raw.decode()
