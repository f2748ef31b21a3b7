"""The LangSmith client of a process that has chosen none: it redacts, and its trouble never becomes the run's.

LangSmith's own queue and batches do the work. What is different: how long anybody waits, that one failure is one
warning, and that a process ends although nobody takes its traces.
"""

import atexit
import logging
import threading
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any
from weakref import WeakMethod

import langsmith
from langsmith import run_trees
from langsmith.schemas import LangSmithInfo
from langsmith.utils import (
    LangSmithConflictError,
    LangSmithMissingAPIKeyWarning,
    LangSmithNotFoundError,
    tracing_is_enabled,
)
from requests import Response
from requests.adapters import HTTPAdapter

from reflexion.models.redaction import keep_secret, redacted, traceable
from reflexion.models.settings import ConnectionSettings

log = logging.getLogger(__name__)

SEND_TIMEOUT_S = (2.0, 10.0)
"""Seconds to connect, and to wait for an answer. The run does not wait, and the process's end waits `EXIT_S`."""
EXIT_S = 1.0
"""Seconds that the end of the process waits without LangSmith having taken anything."""
PAUSE_S = 60.0
"""Seconds after a failure in which nothing is traced."""
MOST_WAITING = 2_000
"""Runs, begun or ended, that wait to be sent; more are dropped."""

_LONGEST_REASON = 300
"""Characters of a warning."""

_INGESTS = ("/runs/multipart", "/runs/batch", "/feedback")
_BATCHES = {
    "use_multipart_endpoint": True,
    "size_limit": 100,
    "size_limit_bytes": 20_971_520,
    "scale_up_nthreads_limit": 4,
    "scale_up_qsize_trigger": 1_000,
    "scale_down_nempty_trigger": 4,
}
_INFO = LangSmithInfo(version="0.13.0", batch_ingest_config=_BATCHES)  # type: ignore[arg-type]
"""What every LangSmith of today supports. Asking would make the first piece of feedback wait for the answer."""


_choosing = threading.Lock()


class TraceClient(langsmith.Client):
    """A `langsmith.Client` that sends redacted traces, and gives up instead of waiting."""

    # LangSmith's other threads would keep the process from ending until what they wait for has come.
    _use_daemon_threads = property(lambda _: True, lambda _, value: None)

    def __init__(self, *, hide_content: bool = False, **options: Any) -> None:
        """A client for what the environment's `LANGSMITH_*` variables name.

        Args:
            hide_content: whether inputs, outputs and comments are left out as a whole.
            **options: of `langsmith.Client`.
        """
        self.hide_content = hide_content
        self._resumes = 0.0
        self._warned = threading.Event()
        self._last_taken = time.monotonic()
        super().__init__(info=_INFO, omit_traced_runtime_info=True, **options)
        keep_secret(self.api_key or "")
        for path in _INGESTS:
            self.session.mount(f"{self.api_url}{path}", HTTPAdapter(max_retries=0))
        atexit.register(partial(_finish, WeakMethod(self.finish)))

    def create_run(self, name: str, inputs: Any, run_type: Any, **fields: Any) -> None:
        """Queue a run's beginning."""
        if self._accepts():
            super().create_run(redacted(name), self._content(inputs), run_type, **self._cleaned(fields))

    def update_run(self, run_id: Any, **fields: Any) -> None:
        """Queue a run's end."""
        if self._accepts():
            super().update_run(run_id, **self._cleaned(fields))

    def create_feedback(self, *args: Any, comment: str | None = None, **fields: Any) -> Any:
        """Queue feedback."""
        if not self._accepts():
            return None
        shown = None if self.hide_content or not comment else redacted(comment)
        return super().create_feedback(*args, comment=shown, **fields)

    def request_with_retries(self, method: Any, pathname: str, **options: Any) -> Response:
        """Send a request. Trouble with traces and feedback is warned about once, and nothing else."""
        if method != "POST" or not pathname.endswith(_INGESTS):
            return super().request_with_retries(method, pathname, **options)
        if self._paused:
            return Response()
        given = {**options.pop("request_kwargs", {}), "timeout": SEND_TIMEOUT_S}
        options["stop_after_attempt"] = 1
        try:
            response = super().request_with_retries(method, pathname, request_kwargs=given, **options)
        except LangSmithConflictError:
            pass  # it is there already
        except LangSmithNotFoundError as error:
            if pathname.endswith("/runs/multipart"):
                raise  # an old LangSmith, which is asked in its own way next
            self.give_up(_reason(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is not the run's trouble
            self.give_up(_reason(error))
        else:
            self._last_taken = time.monotonic()
            return response
        return Response()

    def give_up(self, why: str, pause_s: float = PAUSE_S) -> None:
        """Trace nothing for so many seconds, and say so once."""
        self._resumes = time.monotonic() + pause_s
        self._warn(why)

    def _warn(self, why: str) -> None:
        if not self._warned.is_set():
            self._warned.set()
            log.warning("traces do not reach LangSmith at %s, and runs go on without: %s", self.api_url, why)

    def finish(self) -> None:
        """Send what is waiting; return when LangSmith takes nothing any more, after `EXIT_S` at the latest."""
        begun = time.monotonic()
        while self._waiting and time.monotonic() - max(begun, self._last_taken) < EXIT_S:
            self.flush(timeout=0.05)
        if self._waiting:
            self.give_up("no answer")

    @property
    def queues_feedback(self) -> bool:
        """Whether feedback is sent in the background like runs; old versions of LangSmith take it one by one."""
        return self.tracing_mode == "langsmith" and not self._multipart_disabled

    @property
    def _waiting(self) -> int:
        return 0 if self.tracing_queue is None else self.tracing_queue.unfinished_tasks

    @property
    def _paused(self) -> bool:
        return time.monotonic() < self._resumes

    def _accepts(self) -> bool:
        """Whether anything more can be sent."""
        if self._paused:
            return False
        if self._waiting < MOST_WAITING:
            return True
        self._warn("it takes them more slowly than they come, and some are dropped")
        return False

    def _content(self, value: Any) -> Any:
        return value if value is None else {} if self.hide_content else traceable(value)

    def _cleaned(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        cleaned = dict(fields)
        for name in ("inputs", "outputs"):
            if name in cleaned:
                cleaned[name] = self._content(cleaned[name])
        for name in ("extra", "events", "serialized", "tags"):
            if cleaned.get(name):
                cleaned[name] = traceable(cleaned[name])
        if error := cleaned.get("error"):
            cleaned["error"] = error.partition("(")[0] if self.hide_content else redacted(error)
        return cleaned


def prepare_tracing(connection: ConnectionSettings) -> None:
    """Where tracing is on and the process has no LangSmith client yet, give it a `TraceClient`.

    A client that was set with `langsmith.configure`, or that something else has made use of, is left as it is.
    """
    if not tracing_is_enabled():
        return
    with _choosing:
        current = run_trees._CLIENT  # noqa: SLF001 - asking for it would make one
        if current is None:
            try:
                current = _new_client(hide_content=not connection.trace_content)
            except Exception as error:  # noqa: BLE001 - variables that LangSmith cannot use end no run
                log.warning("nothing is traced, as LangSmith cannot be used so: %s", redacted(str(error)))
                langsmith.configure(enabled=False)
                return
            langsmith.configure(client=current)
    if isinstance(current, TraceClient) and not connection.trace_content:
        current.hide_content = True


def need_no_project_id() -> None:
    """Let LangSmith's client not warn of feedback without a project's id, which would take a request to find out."""
    warnings.filterwarnings("ignore", r"Creating feedback for a run without session_id", module=r"reflexion\.")


def _new_client(*, hide_content: bool) -> TraceClient:
    logging.getLogger("langsmith.client").addFilter(_is_of_use)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        client = TraceClient(hide_content=hide_content)
    if any(issubclass(warning.category, LangSmithMissingAPIKeyWarning) for warning in caught):
        client.give_up("set LANGSMITH_API_KEY, or switch LANGSMITH_TRACING off", pause_s=float("inf"))
    return client


def _reason(error: BaseException) -> str:
    """What was wrong, without the client's lists of traces."""
    if cause := error.__cause__ or error.__context__:
        return _reason(cause)
    response = getattr(error, "response", None)
    if response is None:
        return f"{type(error).__name__}: {redacted(str(error))}"[:_LONGEST_REASON]
    return redacted(f"{response.status_code} {response.reason} {response.text}")[:_LONGEST_REASON]


def _is_of_use(record: logging.LogRecord) -> bool:
    """Not the advice to update a LangSmith that was never asked what it can do."""
    return not str(record.msg).startswith("Run compression is not enabled")


def _finish(finish: "WeakMethod[Any]") -> None:
    with suppress(Exception):
        if call := finish():
            call()
