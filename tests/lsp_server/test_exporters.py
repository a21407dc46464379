"""Exporters: the same counts as the log, off by default, on this machine only."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from lsp_server.exporters import (
    ExporterError,
    OpenTelemetryBackend,
    PrometheusBackend,
    _direct_session,
    is_loopback,
    open_exporters,
    sink,
)
from lsp_server.records import Recorder
from lsp_server.settings import Settings
from lsp_server.telemetry import TelemetryWriter, outcome_record, request_record
from speculation.request import CompletionMetrics

METRICS = CompletionMetrics(
    verify_ms=80.0, ttft_ms=40.0, tpot_ms=10.0, forwards=3, committed=8, drafted=8, accepted=5, new_tokens=10,
    reused_tokens=290, drafted_by_source={"open": 8}, accepted_by_source={"open": 5},
)  # fmt: skip


def records():
    yield request_record(
        id="1",
        trigger="automatic",
        route="generated",
        total_ms=120.0,
        metrics=METRICS,
        document="/home/me/secret.py",
    )
    yield request_record(id="2", trigger="automatic", route="typed-through", total_ms=0.5)
    yield outcome_record("1", "accepted", characters=10)
    yield {"v": 1, "kind": "costs"}


def scrape(port: int) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        return answer.read().decode()


def values(text: str) -> dict[str, float]:
    return {
        line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line[0] != "#"
    }


def test_the_prometheus_endpoint_has_the_counts_and_no_text():
    backend = PrometheusBackend(0)
    writer = TelemetryWriter(None, sinks=[sink(backend)])
    for record in records():
        writer.write(record)
    writer.close()
    text = scrape(backend.port)
    backend.close()
    found = values(text)
    assert found['spec_complete_requests_total{route="generated"}'] == 1
    assert found['spec_complete_requests_total{route="typed-through"}'] == 1
    assert found['spec_complete_outcomes_total{outcome="accepted"}'] == 1
    assert found["spec_complete_forwards_total"] == 3
    assert found["spec_complete_committed_tokens_total"] == 8
    assert found['spec_complete_drafted_tokens_total{source="open"}'] == 8
    assert found['spec_complete_accepted_tokens_total{source="open"}'] == 5
    assert found['spec_complete_stage_seconds_total{stage="verify"}'] == pytest.approx(0.08)
    assert found['spec_complete_request_seconds_sum{route="generated"}'] == pytest.approx(0.12)
    assert found['spec_complete_request_seconds_bucket{le="0.1",route="generated"}'] == 0
    assert found['spec_complete_request_seconds_bucket{le="0.15",route="generated"}'] == 1
    assert "secret" not in text


async def test_the_exporters_work_without_the_log(tmp_path):
    backend = PrometheusBackend(0)
    writer = TelemetryWriter(tmp_path / "log.jsonl", sinks=[sink(backend)])
    sent = []
    recorder = Recorder(writer, sent.append)
    recorder.facts.of_settings(Settings(telemetry_log=False))
    for record in records():
        recorder.write(record)
    recorder.export(request_record(id="3", trigger="command", route="generated", total_ms=90.0))
    await asyncio.sleep(0)  # records are made behind the answer
    writer.close()
    found = values(scrape(backend.port))
    backend.close()
    assert found['spec_complete_requests_total{route="generated"}'] == 2
    assert found['spec_complete_outcomes_total{outcome="accepted"}'] == 1
    assert not (tmp_path / "log.jsonl").exists()
    assert len(sent) == len(list(records()))  # what a script asked for is no client's business


def test_the_prometheus_endpoint_listens_on_the_loopback_address_only():
    backend = PrometheusBackend(0)
    try:
        assert backend._server.server_address[0] == "127.0.0.1"
        if sys.platform == "linux":
            with pytest.raises(OSError), socket.create_connection(("127.0.0.2", backend.port), timeout=1):
                pass
    finally:
        backend.close()


def test_a_port_that_is_taken_is_one_clear_error():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ExporterError, match=f"127.0.0.1:{port}.*another port"):
            open_exporters(prometheus_port=port)


def test_two_servers_can_each_have_their_own_endpoint():
    backends = [PrometheusBackend(0), PrometheusBackend(0)]
    assert backends[0].port != backends[1].port
    for backend in backends:
        backend.close()


def test_opentelemetry_gets_the_same_counts():
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    observe = sink(OpenTelemetryBackend(reader))
    for record in records():
        observe(record)
    data = reader.get_metrics_data()
    points = {
        (metric.name, *sorted(point.attributes.values())): point
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }
    assert points["spec_complete_requests", "generated"].value == 1
    assert points["spec_complete_accepted_tokens", "open"].value == 5
    assert points["spec_complete_request_seconds", "generated"].sum == pytest.approx(0.12)
    assert points["spec_complete_first_token_seconds", "generated"].count == 1
    assert ("spec_complete_first_token_seconds", "typed-through") not in points  # nothing to time


def test_opentelemetry_reaches_a_local_collector_past_any_proxy(monkeypatch):
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    monkeypatch.setenv("http_proxy", "http://192.0.2.1:9")
    received = threading.Event()

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/v1/metrics" and body:
                received.set()
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        (backend,) = open_exporters(otlp_endpoint=f"http://127.0.0.1:{server.server_port}")
        for record in records():
            sink(backend)(record)
        backend.close()
        assert received.wait(5)
        server.shutdown()


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("http://127.0.0.1:4318", True),
        ("http://localhost:4318", True),
        ("http://[::1]:4318", True),
        ("http://127.8.9.1", True),
        ("http://192.168.1.5:4318", False),
        ("http://collector.example:4318", False),
        ("http://localhost.example:4318", False),
        ("http://127.0.0.1@example.org", False),
        ("grpc://127.0.0.1:4317", False),
        ("127.0.0.1:4318", False),
        ("", False),
        ("http://[bad", False),
        ("HTTP://LOCALHOST:4318/otel/", True),
        ("http://example.com\\@127.0.0.1:4318", False),  # some libraries end the host at the backslash
        ("http://127.0.0.1\\.example.com:4318", False),
        ("http://me:word@127.0.0.1:4318", False),
        ("http://127.0.0.1:4318\r\nHost: example.com", False),
        ("http://127.0.0.1\t.example.com", False),  # some take tabs away
        (" http://127.0.0.1:4318", False),
        ("http://127.0.0.1:4318\n", False),
        ("http://127.0.0.1:4318#@example.com", False),
        ("http://127.0.0.1:4318?@example.com", False),
        ("http://2130706433:4318", False),
        ("http://\N{FULLWIDTH DIGIT ONE}27.0.0.1", False),
        ("http:127.0.0.1:4318", False),
    ],
)
def test_only_collectors_on_this_machine_are_allowed(url, allowed):
    assert is_loopback(url) is allowed
    if not allowed:
        with pytest.raises(ExporterError, match="local collector"):
            open_exporters(otlp_endpoint=url)


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:4318", "HTTP://LOCALHOST:4318/otel/", "http://[::1]:4318", "http://127.8.9.1/a.b"],
)
def test_what_is_allowed_has_the_same_host_for_the_library_that_sends(url):
    requests, urllib3 = pytest.importorskip("requests"), pytest.importorskip("urllib3")
    assert is_loopback(url)
    sent = urllib3.util.parse_url(requests.Request("POST", url + "/v1/metrics").prepare().url)
    host = (sent.host or "").strip("[]")
    assert host == "localhost" or ipaddress.ip_address(host).is_loopback


def test_a_redirection_does_not_take_the_figures_elsewhere():
    pytest.importorskip("requests")

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self):
            self.send_response(308 if self.path == "/v1/metrics" else 200)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with _direct_session() as session:
            answer = session.post(f"http://127.0.0.1:{server.server_port}/v1/metrics", timeout=5)
        server.shutdown()
    assert answer.status_code == 308


def test_nothing_is_exported_unless_it_is_set():
    assert open_exporters() == []


def test_a_missing_library_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ExporterError, match=r"pip install 'spec-complete\[telemetry\]'"):
        open_exporters(prometheus_port=0)
