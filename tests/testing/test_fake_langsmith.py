"""The stand-in takes what the installed `langsmith` client sends, however it sends it."""

import uuid

import langsmith
import pytest
from langsmith.utils import LangSmithError
from urllib3 import Retry

from reflexion.testing import FakeLangSmith, Reply


@pytest.fixture(params=["zstd", "multipart", "batch", "single"])
def sent(request):
    """A server, and a client that sends in one of the protocol's ways."""
    how = request.param
    with FakeLangSmith(zstd=how == "zstd", multipart=how in {"zstd", "multipart"}) as server:
        client = langsmith.Client(server.url, api_key="any", auto_batch_tracing=how != "single")
        if how == "zstd":
            server.wait_for(lambda server: server.requests)
        yield server, client
        client.cleanup()


def test_runs_are_put_together_and_nested(sent):
    server, client = sent

    @langsmith.traceable(run_type="llm", name="inner", metadata={"a": 1}, tags=["t"])
    def inner(x: int) -> dict:
        return {"twice": 2 * x}

    @langsmith.traceable(name="outer")
    def outer(x: int) -> int:
        inner(x)
        inner(x + 1)
        raise ValueError("at last")

    with langsmith.tracing_context(enabled=True, client=client), pytest.raises(ValueError, match="at last"):
        outer(1)
    client.flush()
    assert server.tree() == [("outer", [("inner", []), ("inner", [])])]
    root, first, second = server.runs
    assert (first.inputs, first.outputs) == ({"x": 1}, {"twice": 2})
    assert (second.inputs, second.outputs) == ({"x": 2}, {"twice": 4})
    assert (first.run_type, first.tags, first.metadata["a"]) == ("llm", ["t"], 1)
    assert (first.parent_id, first.trace_id) == (root.id, root.id)
    assert "at last" in root.error
    assert not any(run.pending for run in server.runs)


def test_feedback_of_one_id_is_kept_once(sent):
    server, client = sent
    run, feedback = uuid.uuid4(), uuid.uuid4()
    for score in (0.25, 0.75):
        client.create_feedback(run, "score", score=score, trace_id=run, feedback_id=feedback, comment="why")
        client.flush()
    (kept,) = server.feedback
    assert (kept["key"], kept["score"], kept["comment"], kept["run_id"]) == ("score", 0.75, "why", str(run))


def test_a_run_that_was_only_begun_is_pending():
    with FakeLangSmith() as server:
        client = langsmith.Client(server.url, api_key="any", auto_batch_tracing=False)
        client.create_run("begun", {"x": 1}, "chain", id=uuid.uuid4())
        assert [run.pending for run in server.runs] == [True]


@pytest.mark.parametrize("reply", [Reply(status=403), Reply(status=429), Reply(drop=True)], ids=["403", "429", "drop"])
def test_it_misbehaves_on_command_and_keeps_nothing(reply):
    with FakeLangSmith() as server:
        client = langsmith.Client(server.url, api_key="any", auto_batch_tracing=False, retry_config=Retry(0))
        server.misbehave(reply)
        with pytest.raises(LangSmithError):
            client.create_run("lost", {"x": 1}, "chain", id=uuid.uuid4())
        server.behave()
        client.create_run("kept", {"x": 1}, "chain", id=uuid.uuid4())
        assert [run.name for run in server.runs] == ["kept"]
        assert b"lost" in server.bodies


def test_a_connection_that_hangs_is_closed_in_the_end():
    with FakeLangSmith(patience_s=0.1) as server:
        client = langsmith.Client(server.url, api_key="any", auto_batch_tracing=False, retry_config=Retry(0))
        server.misbehave(Reply(hang=True))
        with pytest.raises(LangSmithError):
            client.create_run("lost", {"x": 1}, "chain", id=uuid.uuid4())


def test_another_route_can_be_added():
    with FakeLangSmith() as server:
        server.route("GET", "/sessions", lambda request, body, match: [{"id": str(uuid.uuid4()), "name": "mine"}])
        client = langsmith.Client(server.url, api_key="any", auto_batch_tracing=False)
        assert client.request_with_retries("GET", "/sessions", params={"name": "mine"}).json()[0]["name"] == "mine"
        with pytest.raises(LangSmithError):
            client.request_with_retries("GET", "/nowhere")


def test_what_does_not_arrive_is_not_waited_for_without_end():
    with FakeLangSmith() as server, pytest.raises(TimeoutError):
        server.wait_for(lambda server: server.runs, timeout_s=0.01)
