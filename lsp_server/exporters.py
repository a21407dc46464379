"""Telemetry for other tools: a Prometheus text endpoint and OpenTelemetry metrics, both off unless set.

Only figures leave the process, no text, paths or hashes, and only to this machine: the endpoint listens on
the loopback address, a collector elsewhere is refused. The libraries come with the extra ``telemetry``.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from lsp_server.telemetry import STAGES

if TYPE_CHECKING:
    import requests
    from opentelemetry.sdk.metrics.export import MetricReader

LOOPBACK = "127.0.0.1"
PREFIX = "spec_complete_"
EXPORT_EVERY_MS = 15_000
_PLAIN_URL = re.compile(
    r"https?://(?P<host>localhost|[0-9.]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?(/[a-z0-9/._~-]*)?",
    re.ASCII | re.IGNORECASE,
)
SECONDS_EDGES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 5, 10)


class ExporterError(Exception):
    """An exporter that can't be started; says why and what to do."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Instrument:
    """One exported metric."""

    name: str
    help: str
    labels: tuple[str, ...] = ()


REQUESTS = Instrument("requests", "Requests answered", ("route",))
OUTCOMES = Instrument("outcomes", "What became of answers", ("outcome",))
STAGE_SECONDS = Instrument("stage_seconds", "Time by stage", ("stage",))
DRAFTED = Instrument("drafted_tokens", "Drafted tokens that were verified", ("source",))
ACCEPTED = Instrument("accepted_tokens", "Drafted tokens that were accepted", ("source",))
COUNTED = {  # fields of a request's record that are simply added up
    "forwards": Instrument("forwards", "Decode passes of the target model"),
    "committed": Instrument("committed_tokens", "Committed tokens"),
    "new_tokens": Instrument("prompt_tokens_evaluated", "Prompt tokens evaluated"),
    "reused_tokens": Instrument("prompt_tokens_reused", "Prompt tokens whose KV was already there"),
    "oom_count": Instrument("out_of_memory", "Out-of-memory events"),
}
TIMED = {  # fields whose distribution is exported, in seconds; zero means that there was nothing to time
    "total_ms": Instrument("request_seconds", "Time from receipt to answer", ("route",)),
    "ttft_ms": Instrument("first_token_seconds", "Time to the first token", ("route",)),
    "tpot_ms": Instrument("token_seconds", "Time per token after the first", ("route",)),
}
COUNTERS = (REQUESTS, OUTCOMES, STAGE_SECONDS, DRAFTED, ACCEPTED, *COUNTED.values())


class Backend(Protocol):
    """A metrics library, reduced to what is used of it."""

    def add(self, instrument: Instrument, amount: float, *labels: str) -> None:
        """Raises a counter."""

    def time(self, instrument: Instrument, seconds: float, *labels: str) -> None:
        """Adds to a distribution."""

    def close(self) -> None:
        """Sends what is pending and stops."""


def open_exporters(prometheus_port: int | None = None, otlp_endpoint: str | None = None) -> list[Backend]:
    """Starts what is set; ``None`` is off. Give `sink` of each to the `TelemetryWriter`.

    Raises:
        ExporterError: a library is missing, the port is taken, or the collector is not on this machine.
    """
    backends: list[Backend] = []
    try:
        if prometheus_port is not None:
            backends.append(PrometheusBackend(prometheus_port))
        if otlp_endpoint is not None:
            backends.append(OpenTelemetryBackend(otlp_reader(otlp_endpoint)))
    except ImportError as error:
        _close(backends)
        raise ExporterError(f"{error.name} is missing: pip install 'spec-complete[telemetry]'") from error
    except ExporterError:
        _close(backends)
        raise
    return backends


def sink(backend: Backend) -> Callable[[Mapping[str, Any]], None]:
    """What turns the log's records into a backend's metrics."""

    def observe(record: Mapping[str, Any]) -> None:
        if record["kind"] == "request":
            _observe_request(backend, record)
        elif record["kind"] == "outcome":
            backend.add(OUTCOMES, 1, record["outcome"])

    return observe


def _observe_request(backend: Backend, record: Mapping[str, Any]) -> None:
    route = record["route"]
    backend.add(REQUESTS, 1, route)
    for field, instrument in TIMED.items():
        if record[field] > 0:
            backend.time(instrument, record[field] / 1e3, route)
    for stage in STAGES:
        if record[stage] > 0:
            backend.add(STAGE_SECONDS, record[stage] / 1e3, stage.removesuffix("_ms"))
    for field, instrument in COUNTED.items():
        if record[field]:
            backend.add(instrument, record[field])
    for instrument, field in ((DRAFTED, "drafted_by_source"), (ACCEPTED, "accepted_by_source")):
        for source, tokens in record[field].items():
            backend.add(instrument, tokens, source)


class PrometheusBackend:
    """A text endpoint at ``http://127.0.0.1:PORT/metrics``; port 0 takes a free one."""

    def __init__(self, port: int) -> None:
        import prometheus_client as prometheus

        registry = prometheus.CollectorRegistry()
        self._counters = {
            one: prometheus.Counter(PREFIX + one.name, one.help, one.labels, registry=registry)
            for one in COUNTERS
        }
        self._times = {
            one: prometheus.Histogram(
                PREFIX + one.name, one.help, one.labels, registry=registry, buckets=SECONDS_EDGES
            )
            for one in TIMED.values()
        }
        try:
            self._server, self._thread = prometheus.start_http_server(port, addr=LOOPBACK, registry=registry)
        except OSError as error:
            raise ExporterError(
                f"cannot listen on {LOOPBACK}:{port} for Prometheus ({error.strerror}): set another port"
            ) from error
        self.port = int(self._server.server_port)

    def add(self, instrument: Instrument, amount: float, *labels: str) -> None:
        """Raises a counter."""
        counter = self._counters[instrument]
        (counter.labels(*labels) if labels else counter).inc(amount)

    def time(self, instrument: Instrument, seconds: float, *labels: str) -> None:
        """Adds to a distribution."""
        self._times[instrument].labels(*labels).observe(seconds)

    def close(self) -> None:
        """Stops listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(2)


class OpenTelemetryBackend:
    """OpenTelemetry metrics through any reader of its SDK."""

    def __init__(self, reader: MetricReader) -> None:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View
        from opentelemetry.sdk.resources import Resource

        edges = ExplicitBucketHistogramAggregation(SECONDS_EDGES)
        views = [View(instrument_name=PREFIX + one.name, aggregation=edges) for one in TIMED.values()]
        resource = Resource.create({"service.name": "spec-complete"})
        self._provider = MeterProvider([reader], resource=resource, views=views, shutdown_on_exit=False)
        meter = self._provider.get_meter("spec-complete")
        self._counters = {one: meter.create_counter(PREFIX + one.name, "", one.help) for one in COUNTERS}
        self._times = {
            one: meter.create_histogram(PREFIX + one.name, "s", one.help) for one in TIMED.values()
        }

    def add(self, instrument: Instrument, amount: float, *labels: str) -> None:
        """Raises a counter."""
        self._counters[instrument].add(amount, dict(zip(instrument.labels, labels, strict=True)))

    def time(self, instrument: Instrument, seconds: float, *labels: str) -> None:
        """Adds to a distribution."""
        self._times[instrument].record(seconds, dict(zip(instrument.labels, labels, strict=True)))

    def close(self) -> None:
        """Sends what is pending and stops."""
        self._provider.shutdown(timeout_millis=2_000)


def otlp_reader(endpoint: str) -> MetricReader:
    """A reader that sends to a collector on this machine, by OTLP over HTTP.

    Raises:
        ExporterError: ``endpoint`` is no URL, or of another machine.
    """
    if not is_loopback(endpoint):
        raise ExporterError(
            f"{endpoint!r} is no http URL on this machine: telemetry only goes to a local collector"
        )
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    exporter = OTLPMetricExporter(endpoint.rstrip("/") + "/v1/metrics", timeout=2, session=_direct_session())
    return PeriodicExportingMetricReader(exporter, export_interval_millis=EXPORT_EVERY_MS)


def _direct_session() -> requests.Session:
    """One that goes to the collector itself: neither a proxy nor a redirection takes the figures elsewhere."""
    import requests

    session = requests.Session()
    session.trust_env = False
    session.get_redirect_target = lambda resp: None  # type: ignore[method-assign]
    return session


def is_loopback(url: str) -> bool:
    """True for http URLs whose host is ``localhost`` or a loopback address.

    Only the plainest form passes: of user info, backslashes or white space, each library reads another host.
    """
    plain = _PLAIN_URL.fullmatch(url)
    if plain is None:
        return False
    host = plain["host"].strip("[]").lower()
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _close(backends: Sequence[Backend]) -> None:
    for backend in backends:
        backend.close()
