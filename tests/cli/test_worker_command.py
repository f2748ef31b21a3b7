"""`reflexion worker`: what is wrong is said in one line; tests/batch/temporal has workers at work."""


def test_a_database_that_workers_cannot_share_is_refused(reflexion, model):
    result = reflexion("worker")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "REFLEXION_DATABASE_URL=postgresql://" in result.stderr
    assert reflexion("worker", "--database", "memory://").exit_code == 2


def test_an_address_that_is_none_is_refused(reflexion, model, monkeypatch):
    result = reflexion("worker", "--address", "nowhere")
    assert result.exit_code == 2
    assert result.stderr.startswith("reflexion: Temporal: address")
    monkeypatch.setenv("REFLEXION_TEMPORAL_ADDRESS", "http://127.0.0.1:7233")
    assert "address" in reflexion("worker").stderr


def test_help_tells_the_defaults(reflexion):
    assert "127.0.0.1:7233" in reflexion("worker", "--help").stdout
