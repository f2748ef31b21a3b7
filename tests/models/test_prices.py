"""What tokens cost, and what is said where nobody knows."""

import json
import warnings
from decimal import Decimal

import pytest
from exchanges import ended, exchange
from genai_prices import Usage, calc_price
from genai_prices.data_snapshot import get_snapshot
from pydantic import ValidationError

from reflexion.models.prices import FREE, ImplausiblePrice, Price, Prices, display_usd, undated, what_if

OPENAI = "https://api.openai.com/v1"
ELSEWHERE = "http://127.0.0.1:8000/v1"


def call(**tokens):
    line = ended(exchange(prompt=1_000_000), reply=1_000_000)
    return {**line, "model": "asked", "returned_model": "answered", **tokens}


def price(**usd):
    return Price(**{"input": "10", "output": "30"} | usd)


def test_the_unit_is_usd_per_million_tokens():
    assert Price(input="0.15", output="0.6").cost_usd(prompt_tokens=1_000_000, completion_tokens=0) == Decimal("0.15")
    assert price().cost_usd(prompt_tokens=30, completion_tokens=598) == Decimal("0.01824")


def test_cached_input_and_reasoning_may_have_prices_of_their_own():
    tokens = {"prompt_tokens": 100, "cached_tokens": 40, "completion_tokens": 50, "reasoning_tokens": 20}
    assert price().cost_usd(**tokens) * 1_000_000 == 100 * 10 + 50 * 30
    apart = price(cached_input="1", reasoning="60")
    assert apart.cost_usd(**tokens) * 1_000_000 == 60 * 10 + 40 * 1 + 30 * 30 + 20 * 60


def test_a_million_small_costs_add_up_exactly():
    one = Price(input="0.0375", output="0.15").cost_usd(prompt_tokens=1, completion_tokens=1)
    assert one * 1_000_000 == Decimal("0.1875")


@pytest.mark.parametrize("usd", ["0.00000015", "0.0009", "1000.01", "150000"])
def test_a_price_far_from_any_models_is_warned_about(usd):
    with pytest.warns(ImplausiblePrice, match="USD per million tokens"):
        Price(input=usd, output="1")


@pytest.mark.parametrize("usd", ["0", "0.001", "0.15", "1000"])
def test_other_prices_pass_in_silence(usd):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Price(input=usd, output=usd)


@pytest.mark.parametrize("usd", ["-1", "NaN", "Infinity", "cheap"])
def test_what_is_no_price_is_refused(usd):
    with pytest.raises(ValidationError):
        Price(input=usd, output="1")


def test_a_price_under_a_per_token_key_is_refused():
    with pytest.raises(ValidationError, match="input_cost_per_token"):
        Price.model_validate_json(json.dumps({"input": 1, "output": 1, "input_cost_per_token": 0.15}))


@pytest.mark.parametrize(
    ("name", "bare"),
    [
        ("gpt-x-2026-01-01", "gpt-x"),
        ("claude-x-20250929", "claude-x"),
        ("claude-x@20250929", "claude-x"),
        ("gpt-x", "gpt-x"),
        ("gpt-x-mini", "gpt-x-mini"),
        ("gpt-x-latest", "gpt-x-latest"),
        ("gpt-4-0613", "gpt-4-0613"),
        ("x-99999999", "x-99999999"),
    ],
)
def test_only_a_date_at_the_end_is_an_alias(name, bare):
    assert undated(name) == bare


def test_a_dated_name_goes_by_the_name_without_its_date():
    prices = Prices({"gpt-x": price(), "gpt-x-2026-02-02": FREE})
    assert prices.cost_usd("gpt-x-2026-01-01", ELSEWHERE, prompt_tokens=1_000_000, completion_tokens=0) == 10
    assert prices.cost_usd("gpt-x-2026-02-02", ELSEWHERE, prompt_tokens=1_000_000, completion_tokens=0) == 0
    assert prices.cost_usd("gpt-x-mini", ELSEWHERE, prompt_tokens=1, completion_tokens=1) is None
    assert not (
        Prices({"gpt-x-2026-02-02": FREE}).cost_usd("gpt-x", ELSEWHERE, prompt_tokens=1, completion_tokens=1)
        is not None
    )


def test_a_snapshot_that_the_data_does_not_know_costs_what_its_model_costs():
    tokens = {"prompt_tokens": 1_000_000, "completion_tokens": 1_000_000}
    known = Prices().cost_usd("gpt-4.1", OPENAI, **tokens)
    assert known == 10
    assert Prices().cost_usd("gpt-4.1-2031-01-01", OPENAI, **tokens) == known


def test_a_stated_price_goes_before_the_data_and_holds_at_every_address():
    prices = Prices({"gpt-4.1": price()})
    for url in (OPENAI, ELSEWHERE):
        assert prices.cost_usd("gpt-4.1-2025-04-14", url, prompt_tokens=1_000_000, completion_tokens=0) == 10


@pytest.mark.parametrize(("model", "url"), [("local-70b-q4", ELSEWHERE), ("gpt-4.1", ELSEWHERE), ("gpt-x-1", OPENAI)])
def test_an_unknown_price_is_unknown_and_not_nothing(model, url):
    assert Prices().cost_usd(model, url, prompt_tokens=1, completion_tokens=1) is None
    assert not (Prices().cost_usd(model, url, prompt_tokens=1, completion_tokens=1) is not None)


@pytest.mark.parametrize(
    ("stated", "usd"),
    [({"asked": "1", "answered": "2"}, 1), ({"answered": "2"}, 2), ({"asked": "1"}, 1), ({}, None)],
)
def test_the_requested_model_counts_and_the_returned_one_only_where_that_is_unpriced(stated, usd):
    prices = Prices({name: Price(input=per_million, output="0") for name, per_million in stated.items()})
    assert prices.cost_of(call(), ELSEWHERE) == usd


def test_what_the_same_run_would_have_cost_elsewhere():
    lines = [call(), call(prompt_tokens=0, completion_tokens=0, outcome="rate_limit"), call(cached_tokens=500_000)]
    found = what_if(
        iter(lines),
        {
            "dear": price(),
            "with a cache": price(cached_input="2"),
            "free": FREE,
            "gpt-4.1": Prices().at("gpt-4.1", OPENAI),
            "unknown": Prices().at("nobody", OPENAI),
        },
    )
    assert found["dear"] == 80
    assert found["with a cache"] == 76
    assert found["free"] == 0
    assert found["unknown"] is None
    assert Decimal(18) < found["gpt-4.1"] < Decimal(20)


@pytest.mark.parametrize(
    ("cost", "shown"),
    [
        (None, "unknown"),
        (Decimal(0), "$0"),
        (Decimal("0.00001"), "<$0.0001"),
        (Decimal("0.01824"), "$0.0182"),
        (Decimal("12.34567"), "$12.3457"),
    ],
)
def test_money_is_rounded_for_people_only(cost, shown):
    assert display_usd(cost) == shown


@pytest.mark.parametrize("cached", [0, 300, 250_000])
def test_listed_prices_are_the_librarys_to_the_last_digit(cached):
    tokens = Usage(input_tokens=300_000, output_tokens=70, cache_read_tokens=cached)
    sums = {"prompt_tokens": 300_000, "completion_tokens": 70, "cached_tokens": cached}
    compared = 0
    for provider, url in (
        ("openai", OPENAI),
        ("google", "https://generativelanguage.googleapis.com"),
        ("deepseek", "https://api.deepseek.com/v1"),
    ):
        for model in next(p for p in get_snapshot().providers if p.id == provider).models:
            try:
                listed = calc_price(tokens, model_ref=model.id, provider_api_url=url).total_price
            except LookupError:
                continue
            assert Prices().cost_usd(model.id, url, **sums) == listed
            compared += 1
    assert compared > 50
