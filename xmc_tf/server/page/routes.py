"""The routes of the web page, which can be opened on this machine only."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import parse_json
from xmc_tf.server.access import LOCAL, AllowedHosts
from xmc_tf.server.application import Application, HttpAnswer, Limits, RefusedError, Request, as_json
from xmc_tf.server.page.answering import PageAnswers

_LOG = logging.getLogger(__name__)
ON_THIS_MACHINE = AllowedHosts(LOCAL, only=True)
# Enough for a text of 1 MB in any JSON encoding.
LIMITS = Limits(max_bytes=8 << 20, seconds=10.0, connections=256)
_KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}


def page_files(page: Path, *others: Path) -> dict[str, tuple[str, str]]:
    """Return content type and content of a page, which has the path "/", and of its other files."""
    paths = {"/": page, **{f"/{one.name}": one for one in others}}
    return {
        path: (f"{_KINDS[one.suffix]}; charset=utf-8", one.read_text(encoding="utf-8")) for path, one in paths.items()
    }


HERE = Path(__file__).parent
FILES = page_files(HERE / "page.html", HERE / "page.css", HERE / "shared.js", HERE / "page.js")
"""The page has no external resources."""
_ANSWER_S = 2 * LIMITS.seconds  # for the model; soon after, the connection of a request without an answer is closed


class LocalPage:
    """A page with its files, and answers in JSON.

    Args:
        files: content type and content of each path.
        gets: functions whose result a path returns.
        posts: functions that a path calls with the JSON object of the request.
        allowed: the hosts by which the page may be called.
    """

    headers: ClassVar[dict[str, str]] = {
        # No external resources, and no embedding in other pages.
        "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-store",
    }

    def __init__(
        self, files: Mapping[str, tuple[str, str]], gets: Mapping[str, Callable[[], Any]],
        posts: Mapping[str, Callable[[dict[str, Any]], Any]], allowed: AllowedHosts = ON_THIS_MACHINE,
    ) -> None:  # fmt: skip
        self._files, self._gets, self._posts, self._allowed = files, gets, posts, allowed

    async def answer(self, request: Request) -> HttpAnswer:
        self._allowed.check(request)
        if (post := self._posts.get(request.path)) is not None:
            request.allow("POST")
            # Pages of other sites cannot send this type without a preflight request, which is never granted.
            if request.content_type != "application/json":
                raise RefusedError(415, "a request must have the content type application/json")
            question = parse_json(await request.body(), of="the question", limit=LIMITS.max_bytes)
            return await _run_model(lambda: post(question))
        if (get := self._gets.get(request.path)) is not None:
            request.allow("GET", "HEAD")
            return await _run_model(get)
        if request.path not in self._files:
            raise RefusedError(404, f"there is no {request.path[:200]} here")
        request.allow("GET", "HEAD")
        kind, content = self._files[request.path]
        return HttpAnswer(200, content.encode(), kind)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Do nothing while the server runs."""
        yield

    def answered(self, status: int, seconds: float) -> None:
        """Do nothing: the page has no metrics."""


class Page(LocalPage):
    """The page to try a model."""

    def __init__(self, answers: PageAnswers) -> None:
        super().__init__(FILES, {"/about": answers.about}, {"/ask": lambda question: _labels(answers, question)})


def _labels(answers: PageAnswers, question: dict[str, Any]) -> dict[str, Any]:
    text, k = question.get("text"), question.get("k")
    if not isinstance(text, str) or not (k is None or type(k) is int):
        raise RefusedError(400, 'a request has the form {"text": "…", "k": 5}; k may be left out')
    return answers.ask(text, k)


def page_application(answers: PageAnswers) -> Application:
    return Application(Page(answers), LIMITS)


async def _run_model(work: Callable[[], Any]) -> HttpAnswer:
    try:
        found = await asyncio.wait_for(asyncio.to_thread(work), _ANSWER_S)
        return found if isinstance(found, HttpAnswer) else as_json(200, found)
    except RefusedError:
        raise
    except InputError as error:
        raise RefusedError(422, str(error)) from None
    except TimeoutError:
        raise RefusedError(504, f"no answer within {_ANSWER_S:g} s; try a shorter text, or xmc-tf predict") from None
    except Exception as error:  # noqa: BLE001
        # The page shows any error instead of waiting forever.
        _LOG.exception("the model failed")
        raise RefusedError(500, f"{type(error).__name__}: {error}") from None
