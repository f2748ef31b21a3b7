"""The settings of a run: where they come from, what is refused, and in which words."""

from decimal import Decimal

import pytest

from reflexion.graphs import ConfigurationError, Settings
from reflexion.nodes import make_settings
from reflexion.nodes.settings import said, settings_of


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    monkeypatch.undo()
    make_settings()  # forgets the .env of this test


def test_the_caller_wins_over_the_environment_and_that_over_dotenv(folder, monkeypatch):
    (folder / ".env").write_text("REFLEXION_THRESHOLD=0.1\nREFLEXION_PATIENCE=1\nREFLEXION_MAX_ATTEMPTS=4\nOTHER=1\n")
    monkeypatch.setenv("REFLEXION_THRESHOLD", "0.2")
    monkeypatch.setenv("REFLEXION_PATIENCE", "2")
    settings = make_settings(threshold=0.3)
    assert (settings.threshold, settings.patience, settings.max_attempts) == (0.3, 2, 4)


def test_changes_for_one_run_keep_the_rest_of_the_base(monkeypatch):
    base = make_settings(threshold=0.3, max_attempts=4)
    monkeypatch.setenv("REFLEXION_MAX_ATTEMPTS", "9")
    monkeypatch.setenv("REFLEXION_PATIENCE", "9")
    changed = make_settings(base, threshold=0.5)
    assert (changed.threshold, changed.max_attempts, changed.patience) == (0.5, 4, 0)
    assert make_settings(base) == base


def test_a_list_of_models_is_separated_by_commas(monkeypatch):
    monkeypatch.setenv("REFLEXION_FALLBACK_MODELS", "one-m, two/m:free ,")
    assert make_settings().fallback_models == ("one-m", "two/m:free")
    assert make_settings(fallback_models=["a", "b"]).fallback_models == ("a", "b")


def test_an_empty_variable_is_none(monkeypatch):
    monkeypatch.setenv("REFLEXION_THRESHOLD", "")
    assert make_settings().threshold == 0.8


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"threshold": 7}, "threshold: .*0 to 1, so 7 of 10 is 0.7"),
        ({"max_attempts": 0}, r"max_attempts: .*\(it is 0\)"),
        ({"thresold": 0.5}, "thresold: there is no such setting"),
        ({"attempt_style": "wild"}, "attempt_style: .*'auto', 'fresh' or 'revise'"),
        ({"actor_prompt": "Be brief."}, r"^actor_prompt: lacks \{\{rules\}\}, without which nothing that was learned"),
        ({"evaluator_prompt": "Judge {{task}}."}, r"^evaluator_prompt: lacks \{\{criteria\}\}"),
        ({"budget_usd": "-1", "namespace": ""}, "namespace: .*; budget_usd: "),
        ({"namespace": 7}, r"namespace: .*string \(it is 7\)"),
        ({"namespace": " "}, "namespace: the namespace is empty"),
        ({"namespace": "a" * 129}, "namespace: .*at most 128 characters"),
        ({"memory_tokens": 0}, "memory_tokens: "),
        ({"memory_lessons": 0}, "memory_lessons: "),
        ({"memory_days": 0}, "memory_days: "),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(values, words):
    with pytest.raises(ConfigurationError, match=words) as refused:
        make_settings(**values)
    assert "\n" not in str(refused.value)
    with pytest.raises(ConfigurationError, match=words):
        make_settings(Settings(), **values)


def test_a_context_that_is_not_ours_means_the_default():
    default, own = Settings(max_attempts=2), Settings(max_attempts=1)
    for context in (None, {"max_attempts": 1}, object()):
        assert settings_of(context, default, {}) is default
        assert settings_of(context, default, {"max_attempts": 5}).max_attempts == 5
    assert settings_of(own, default, {}) is own


def test_what_a_run_was_told_at_its_start_holds_until_it_is_told_otherwise(monkeypatch):
    monkeypatch.setenv("REFLEXION_THRESHOLD", "0.6")
    default = Settings()
    kept = said(Settings(budget_usd="0.25", fallback_models=("a", "b"), max_attempts=3), default)
    assert kept == {"budget_usd": "0.25", "fallback_models": ["a", "b"], "max_attempts": 3}
    for context in (None, Settings()):
        resumed = settings_of(context, default, kept)
        assert (resumed.budget_usd, resumed.fallback_models, resumed.threshold) == (Decimal("0.25"), ("a", "b"), 0.6)
    resumed = settings_of(Settings(budget_usd=1, threshold=0.9), default, kept)
    assert (resumed.budget_usd, resumed.fallback_models, resumed.threshold) == (1, ("a", "b"), 0.9)


def test_a_run_is_told_something_else_even_where_that_is_what_the_agent_says():
    default = Settings(max_attempts=2)
    kept = said(make_settings(default, max_attempts=5), default)
    assert settings_of(make_settings(default), default, kept).max_attempts == 5
    assert settings_of(make_settings(default, patience=1), default, kept).max_attempts == 5
    assert settings_of(make_settings(default, max_attempts=2), default, kept).max_attempts == 2


def test_what_the_agent_says_is_not_kept_with_a_run():
    default = Settings(max_attempts=2)
    assert said(default, default) == {}
    assert said(make_settings(default, patience=1), default) == {"patience": 1}


def test_what_was_kept_and_cannot_be_used_any_more_is_refused_in_one_line():
    with pytest.raises(ConfigurationError, match="no_more: there is no such setting"):
        settings_of(None, Settings(), {"no_more": 1})


def test_an_empty_prompt_is_none():
    settings = make_settings(actor_prompt="  ", reflector_prompt="", planner_prompt=" Plan. ")
    assert settings.own_prompts() == {"planner": "Plan."}
