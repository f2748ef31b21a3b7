"""A test report is read as the share that passed; one that broke off, or tries something, is not believed."""

import pytest

from reflexion.evaluators.reports import Outcome, ReportError, read_junit, read_tap

TAP = """TAP version 14
# Subtest: adds
    ok 1 - inner
    1..1
ok 1 - adds
  ---
  duration_ms: 0.5
  ...
not ok 2 - subtracts
  ---
  error: 'expected 1'
  got: 2
  ...
ok 3 - later # SKIP no network
not ok 4 - someday # TODO
not ok 5
1..6
"""


def test_tap_counts_the_outermost_tests_and_those_that_the_plan_misses():
    results = read_tap(TAP)
    assert [(result.name, result.passed) for result in results] == [
        ("adds", True),
        ("subtracts", False),
        ("test 5", False),
        ("test 6", False),
    ]
    assert results[1].message == "error: 'expected 1'\ngot: 2"
    assert results[3].message == "did not run"


@pytest.mark.parametrize(
    ("text", "passed"),
    [
        ("", []),
        ("hello", []),
        ("1..0 # skipped", []),
        ("1..2\nok\nok\n", [True, True]),
        ("ok 1\nok 2\n", [True, True, False]),
        ("1..3\nok 1\nBail out! no disk\n", [True, False, False, False]),
        ("1..1\nnot ok 1 - a\n# because\n# of this\n", [False]),
        ("1..1\nok 1 - handles \\# hash # skip me\n", []),
        ("okay 1\n1..1", [False]),
        ("1..99999999999\n", [False] * 1000),
    ],
)
def test_tap_streams(text, passed):
    assert [result.passed for result in read_tap(text)] == passed


def test_tap_comments_are_the_message():
    assert read_tap("1..1\nnot ok 1 - a\n# because\n# of this\n")[0].message == "because\nof this"


JUNIT = b"""<?xml version="1.0"?>
<testsuites><testsuite name="s" tests="4">
<testcase classname="calc" name="adds" time="0.1"><system-out>noise</system-out></testcase>
<testcase classname="calc" name="subtracts"><failure message="expected 1, got 2">trace</failure></testcase>
<testcase name="breaks"><error>no
such thing</error></testcase>
<testcase name="later"><skipped/></testcase>
</testsuite></testsuites>"""


def test_junit_counts_the_cases_that_were_not_skipped():
    assert read_junit(JUNIT) == [
        Outcome("calc.adds", True),
        Outcome("calc.subtracts", False, "expected 1, got 2"),
        Outcome("breaks", False, "no\nsuch thing"),
    ]


def test_junit_with_a_namespace_and_without_suites():
    assert read_junit(b'<testsuite xmlns="urn:x"><testcase name="a"/></testsuite>') == [Outcome("a", True)]
    assert read_junit(b"<testsuite/>") == []


LAUGHS = "".join(f'<!ENTITY l{n + 1} "{f"&l{n};" * 10}">' for n in range(9))
BOMB = f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY l0 "ha">{LAUGHS}]><testsuite>&l9;</testsuite>'


@pytest.mark.parametrize(
    "data",
    [
        b"", b"no xml", b"<testsuite>", b"\xff\xfe", BOMB.encode(), BOMB.encode("utf-16"),
        b'<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/hostname">]><testsuite><testcase name="&e;"/></testsuite>',
        b'<!DOCTYPE x SYSTEM "http://192.0.2.1/x.dtd"><testsuite/>',
    ],
)  # fmt: skip
def test_what_is_no_plain_xml_is_refused(data):
    with pytest.raises(ReportError):
        read_junit(data)
