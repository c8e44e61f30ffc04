"""The routes of the web page, which can be opened on this machine only."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, ClassVar

from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import parse_json
from xmc_tf.server.access import LOCAL, AllowedHosts
from xmc_tf.server.application import Application, HttpAnswer, Limits, RefusedError, Request, as_json
from xmc_tf.server.page.answering import PageAnswers

_LOG = logging.getLogger(__name__)
_ALLOWED = AllowedHosts(LOCAL, only=True)
# Enough for a text of 1 MB in any JSON encoding.
LIMITS = Limits(max_bytes=8 << 20, seconds=10.0, connections=256)
# Path -> content type and content. The page has no external resources.
FILES = {
    path: (f"{kind}; charset=utf-8", Path(__file__).with_name(name).read_text(encoding="utf-8"))
    for path, name, kind in (
        ("/", "page.html", "text/html"), ("/page.css", "page.css", "text/css"),
        ("/page.js", "page.js", "text/javascript"),
    )
}  # fmt: skip
_ANSWER_S = 2 * LIMITS.seconds  # for the model; soon after, the connection of a request without an answer is closed


class Page:
    headers: ClassVar[dict[str, str]] = {
        # No external resources, and no embedding in other pages.
        "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-store",
    }

    def __init__(self, answers: PageAnswers) -> None:
        self._answers = answers

    async def answer(self, request: Request) -> HttpAnswer:
        _ALLOWED.check(request)
        if request.path == "/ask":
            request.allow("POST")
            return await self._labels(request)
        if request.path == "/about":
            request.allow("GET", "HEAD")
            return await _run_model(self._answers.about)
        if request.path not in FILES:
            raise RefusedError(404, f"there is no {request.path[:200]} here")
        request.allow("GET", "HEAD")
        kind, content = FILES[request.path]
        return HttpAnswer(200, content.encode(), kind)

    async def _labels(self, request: Request) -> HttpAnswer:
        # Pages of other sites cannot send this type without a preflight request, which is never granted.
        if request.content_type != "application/json":
            raise RefusedError(415, "a request must have the content type application/json")
        question = parse_json(await request.body(), of="the question", limit=LIMITS.max_bytes)
        text, k = question.get("text"), question.get("k")
        if not isinstance(text, str) or not (k is None or type(k) is int):
            raise RefusedError(400, 'a request has the form {"text": "…", "k": 5}; k may be left out')
        return await _run_model(lambda: self._answers.ask(text, k))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Do nothing while the server runs."""
        yield

    def answered(self, status: int, seconds: float) -> None:
        """Do nothing: the page has no metrics."""


def page_application(answers: PageAnswers) -> Application:
    return Application(Page(answers), LIMITS)


async def _run_model(work: Callable[[], Any]) -> HttpAnswer:
    try:
        return as_json(200, await asyncio.wait_for(asyncio.to_thread(work), _ANSWER_S))
    except InputError as error:
        raise RefusedError(422, str(error)) from None
    except TimeoutError:
        raise RefusedError(504, f"no answer within {_ANSWER_S:g} s; try a shorter text, or xmc-tf predict") from None
    except Exception as error:  # noqa: BLE001
        # The page shows any error instead of waiting forever.
        _LOG.exception("the model failed")
        raise RefusedError(500, f"{type(error).__name__}: {error}") from None
