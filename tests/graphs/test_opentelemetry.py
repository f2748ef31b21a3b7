"""A run's spans arrive at a collector; in a process of its own, since OpenTelemetry's settings are the process's."""

import gzip
import os
import subprocess
import sys
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from loop_bench import BAD, GOOD
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

RUN = """
import asyncio
from langchain_core.tracers.langchain import wait_for_all_tracers
from reflexion.graphs import open_reflexion

async def main():
    async with open_reflexion(database_url="memory://") as agent:
        result = await agent.run("Sum a list; the key is sk-secret-of-the-model.", thread="the-thread")
        print(result.answer, result.usage.prompt_tokens, result.usage.completion_tokens)

asyncio.run(main())
wait_for_all_tracers()
"""

NODES = {"recall": 1, "actor": 2, "evaluator": 2, "reflector": 1, "planner": 1, "remember": 1}


class Collector(ThreadingHTTPServer):
    """Takes OTLP over HTTP, as protobuf."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests = []

    @property
    def resources(self):
        batches = [ExportTraceServiceRequest.FromString(body) for _, _, body in self.requests]
        return [resource for batch in batches for resource in batch.resource_spans]

    @property
    def spans(self):
        return [span for resource in self.resources for scope in resource.scope_spans for span in scope.spans]


class Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.requests.append((self.path, dict(self.headers), body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def collector():
    with Collector() as collector:
        thread = threading.Thread(target=collector.serve_forever)
        thread.start()
        yield collector
        collector.shutdown()
        thread.join()


@pytest.mark.timeout(300)
def test_the_spans_of_a_run_arrive_with_nodes_models_and_tokens(bench, collector):
    bench.server.script("critic-m", BAD, GOOD)
    printed = run(bench, collector)

    assert {path for path, _, _ in collector.requests} == {"/v1/traces"}
    assert {headers["authorization"] for _, headers, _ in collector.requests} == {"any"}
    assert {attributes(resource.resource)["service.name"] for resource in collector.resources} == {"my-service"}
    spans = collector.spans

    assert len({span.trace_id for span in spans}) == 1
    (root,) = [span for span in spans if not span.parent_span_id]
    assert root.name == "reflexion"
    assert attributes(root)["langsmith.metadata.thread_id"] == "the-thread"
    nodes = [span for span in spans if span.parent_span_id == root.span_id]
    assert Counter(span.name for span in nodes) == NODES

    calls = [span for span in spans if attributes(span)["langsmith.span.kind"] == "llm"]
    of_node = {span.span_id: span.name for span in nodes}
    asked = Counter((of_node[call.parent_span_id], attributes(call)["gen_ai.request.model"]) for call in calls)
    assert asked == {("actor", "actor-m"): 2, ("evaluator", "critic-m"): 2, ("reflector", "reflector-m"): 1} | {
        ("planner", "planner-m"): 1
    }
    assert sum(attributes(call)["gen_ai.usage.input_tokens"] for call in calls) == int(printed[-2])
    assert sum(attributes(call)["gen_ai.usage.output_tokens"] for call in calls) == int(printed[-1])
    assert all(span.end_time_unix_nano >= span.start_time_unix_nano > 0 for span in spans)
    assert any("the key is [key]" in attributes(call)["gen_ai.prompt"] for call in calls)
    assert attributes(root)["langsmith.metadata.stop_reason"] == "passed"
    assert not any(b"sk-secret" in body for _, _, body in collector.requests)


@pytest.mark.timeout(300)
def test_one_setting_keeps_content_from_the_collector_too(bench, collector):
    bench.server.script("critic-m", GOOD)
    run(bench, collector, REFLEXION_TRACE_CONTENT="false")
    assert {"reflexion", "actor attempt 1"} <= {span.name for span in collector.spans}
    assert not any(b"Sum a list" in body or b"answer 1" in body for _, _, body in collector.requests)


def run(bench, collector, **variables):
    """One run in a process of its own; returns the words that it prints."""
    address = f"http://127.0.0.1:{collector.server_port}"
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        env=environment(bench, address) | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def environment(bench, address):
    ours = {
        "REFLEXION_BASE_URL": bench.server.base_url,
        "REFLEXION_API_KEY": "sk-secret-of-the-model",
        "REFLEXION_ACTOR_MODEL": "actor-m",
        "REFLEXION_EVALUATOR_MODEL": "critic-m",
        "REFLEXION_REFLECTOR_MODEL": "reflector-m",
        "REFLEXION_PLANNER_MODEL": "planner-m",
        "LANGSMITH_API_KEY": "sk-secret-of-langsmith",
        "LANGSMITH_TRACING": "true",
        "LANGSMITH_OTEL_ENABLED": "true",
        "LANGSMITH_OTEL_ONLY": "true",
        "OTEL_EXPORTER_OTLP_ENDPOINT": address,
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=any",
        "OTEL_SERVICE_NAME": "my-service",
    }
    others = {k: v for k, v in os.environ.items() if not k.startswith(("REFLEXION_", "LANGSMITH_", "OTEL_", "OPENAI_"))}
    return others | ours


def attributes(of):
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in of.attributes}
