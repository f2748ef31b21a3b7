"""The named presets."""

from decimal import Decimal

import pytest

from reflexion.models.prices import Prices
from reflexion.models.profiles import PROFILES, find_profile
from reflexion.models.settings import normalise_base_url


@pytest.mark.parametrize(
    ("name", "usd_in", "usd_out", "host", "variable"),
    [
        ("gpt-4.1", "8", "24", "api.openai.com", "OPENAI_API_KEY"),
        ("claude-sonnet-4.5", "15", "75", "api.anthropic.com", "ANTHROPIC_API_KEY"),
        ("gemini-2.5-flash", "2.50", "10", "generativelanguage.googleapis.com", "GEMINI_API_KEY"),
        ("deepseek-v3.2", "0.42", "1.68", "api.deepseek.com", "DEEPSEEK_API_KEY"),
    ],
)
def test_a_million_tokens_cost_what_the_preset_says(name, usd_in, usd_out, host, variable, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REFLEXION_PRICES", raising=False)
    profile = find_profile(name)
    connection = profile.connection({variable: " key-of-the-provider\n"})
    assert f"//{host}/" in connection.base_url
    assert normalise_base_url(connection.base_url) == connection.base_url
    assert connection.api_key.get_secret_value() == "key-of-the-provider"
    prices = Prices(connection.prices)
    million = {"prompt_tokens": 1_000_000, "completion_tokens": 0}
    assert prices.cost_usd(profile.model, connection.base_url, **million) == Decimal(usd_in)
    million = {"prompt_tokens": 0, "completion_tokens": 1_000_000}
    assert prices.cost_usd(profile.model, connection.base_url, **million) == Decimal(usd_out)


def test_a_price_stated_in_the_environment_wins(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REFLEXION_PRICES", '{"gpt-4.1": {"input": 2, "output": 8}, "other": {"input": 1, "output": 1}}')
    prices = PROFILES["gpt-4.1"].connection({"OPENAI_API_KEY": "k"}).prices
    assert prices["gpt-4.1"].output == 8
    assert set(prices) == {"gpt-4.1", "other"}


def test_a_missing_key_is_named(monkeypatch, tmp_path):
    with pytest.raises(ValueError, match="set DEEPSEEK_API_KEY"):
        PROFILES["deepseek-v3.2"].connection({"OPENAI_API_KEY": "of somebody else"})


def test_an_unknown_profile_names_the_known_ones():
    with pytest.raises(ValueError, match=r"no profile 'gpt-9': choose gpt-4\.1, claude-sonnet-4\.5"):
        find_profile("gpt-9")
