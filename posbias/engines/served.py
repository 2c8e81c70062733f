"""A model behind a server with OpenAI's API (vLLM, llama.cpp, TGI, ``transformers serve``) as an engine.

Its own answers come from chat completions, how likely a given answer is from completions that
repeat the prompt with log-probabilities, where the server has that. Requests run side by side, and
each answer is appended to a file as it comes: nothing is asked, or paid, a second time.
"""

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from posbias import errors
from posbias.engines import Generated, Likelihood, has_ended
from posbias.prompts import Prompt

KEY = "OPENAI_API_KEY"
"""The variable of the environment that has the key; it is neither printed nor kept."""
CONCURRENCY, RETRIES, TIMEOUT = 8, 5, 300.0
"""Requests side by side; how often one is tried again; and for how many seconds it is waited."""
LETTERS = 4
"""Letters to a token, where tokens are estimated."""
BEYOND = "expected the server to answer, received"
KEPT = "what was answered is kept, and the same command goes on"

Record = dict[str, Any]


def served_prompt(message: str, begin: str, answer: str) -> Prompt:
    """Return a prompt as a server takes it: a message, and the same as plain text up to the answer's first words."""
    front = " " if begin else ""
    return Prompt(f"{message}\nAnswer:{front}{begin}", f" {answer}", (), message=message)


def count_tokens(text: str) -> int:
    """Return about how many tokens a text has.

    >>> count_tokens("What is the value?")
    5
    """
    return -(-len(text) // LETTERS)


class ServedEngine:
    """Ask a model that is served, some requests side by side; answers are appended to a file and taken from it."""

    has_gradients = False

    def __init__(
        self, url: str, name: str, *, concurrency: int = CONCURRENCY, kept: Path | None = None, retries: int = RETRIES
    ) -> None:
        import openai

        self.url, self.name, self.kept = url.rstrip("/"), name, kept
        self.concurrency = errors.positive_integer("concurrency", concurrency)
        if not self.url.startswith(("http://", "https://")):
            raise errors.invalid("server", "an address such as http://localhost:8000/v1", url)
        key = os.environ.get(KEY) or "none"
        self._client = openai.OpenAI(base_url=self.url, api_key=key, max_retries=retries, timeout=TIMEOUT)
        self._lock, self._records = threading.Lock(), read_records(kept)
        self._told: bool | None = None
        self._with_logs = True
        self.requests = self.tokens = self.estimated = 0

    @property
    def has_loglikelihood(self) -> bool:
        """Whether the server tells how likely a given answer is; it is asked once."""
        if self._told is None:
            try:
                found = self._score(served_prompt("Is this a question?", "", "Yes"))
                self._told = found.log_probability == found.log_probability
            except Refused:
                self._told = False
        return self._told

    def loglikelihood(self, prompts: Sequence[Prompt]) -> Iterator[Likelihood]:
        """Yield how likely the answer of each prompt is."""
        yield from self._side_by_side(self._score, prompts)

    def generate(self, prompts: Sequence[Prompt], most: int, until: str = "") -> Iterator[Generated]:
        """Yield an answer to each prompt, up to a letter of ``until`` that follows a word."""
        yield from self._side_by_side(lambda prompt: self._answer(prompt, most, until), prompts)

    def _side_by_side(self, ask: Callable[[Prompt], Any], prompts: Sequence[Prompt]) -> Iterator[Any]:
        """Yield what each prompt gives, in order; the first error ends all."""
        pool = ThreadPoolExecutor(self.concurrency)
        try:
            yield from pool.map(ask, prompts)
        finally:
            pool.shutdown(cancel_futures=True)

    def _answer(self, prompt: Prompt, most: int, until: str) -> Generated:
        request = {"messages": [{"role": "user", "content": prompt.message}], "max_tokens": most, "temperature": 0.0}
        found = None
        if self._with_logs:
            try:
                found = self._ask("chat", {**request, "logprobs": True})
            except Refused:
                self._with_logs = False
        found = found or self._ask("chat", request)
        text, tokens = str(found["text"]), found["logs"]
        if not text.strip() and found["finish"] == "length":
            received = f"none within {most} (finish_reason length): a model that thinks before it answers?"
            raise errors.invalid("answer", "text among its first tokens", received)
        log, said, count = 0.0, "", 0
        for token, value in tokens:
            if has_ended(said + token, until):
                break
            log, said, count = log + value, said + token, count + 1
        if not tokens:
            said, log, count = cut_text(text, until), float("nan"), count_tokens(text)
        return Generated(said, (), log if count else float("nan"), count, found["finish"] == "length")

    def _score(self, prompt: Prompt) -> Likelihood:
        request = {"prompt": prompt.text + prompt.answer, "max_tokens": 1, "echo": True, "logprobs": 1}
        found = self._ask("text", {**request, "temperature": 0.0})
        start, end = len(prompt.text), len(prompt.text) + len(prompt.answer)
        own = [(value, best) for at, value, best in found["logs"] if start <= at < end]
        if not own or any(value is None for value, _ in own):
            return Likelihood(float("nan"), False)
        return Likelihood(sum(value for value, _ in own), all(value >= best for value, best in own))

    def _ask(self, kind: str, request: Record) -> Record:
        """Return what a server says to a request, from the file if it was asked before."""
        about = json.dumps([self.url, self.name, kind, request], sort_keys=True)
        key = hashlib.sha256(about.encode()).hexdigest()
        found = self._records.get(key)
        if found is None:
            found = self._send(kind, request)
            self._keep(key, found)
        with self._lock:
            self.requests += 1
            self.tokens += found["tokens"]
            self.estimated += not found["counted"]
        return found

    def _send(self, kind: str, request: Record) -> Record:
        """Return what the server says; one line says what is wrong."""
        import openai

        to = self._client.chat.completions if kind == "chat" else self._client.completions
        try:
            said = to.create(model=self.name, **request)
            return read_chat(said, request) if kind == "chat" else read_text(said, request)
        except openai.APITimeoutError:
            raise ConnectionError(f"{self.url}: {BEYOND} nothing within {TIMEOUT:.0f} s; {KEPT}") from None
        except openai.APIConnectionError as error:
            cause = errors.short(error.__cause__ or error)
            raise ConnectionError(f"{self.url}: {BEYOND} none there, or one that broke off ({cause}); {KEPT}") from None
        except openai.APIStatusError as error:
            raise self._refusal(error) from None
        except (openai.APIResponseValidationError, AttributeError, IndexError, KeyError, TypeError, ValueError):
            raise errors.invalid(self.url, "JSON with an answer, as OpenAI's API has it", "something else") from None

    def _refusal(self, error: Any) -> Exception:
        """Return what the server's status means."""
        status = error.status_code
        if status in (401, 403):
            return errors.invalid(KEY, f"a key that {self.url} takes", f"status {status}")
        if status == 429 or status >= 500:
            return ConnectionError(f"{self.url}: {BEYOND} status {status}, also when tried again; {KEPT}")
        said = errors.short(error).replace(self._client.api_key, "…")
        if status == 404 and "model" in said.lower():
            return errors.invalid("model", f"one that {self.url} serves{self._served()}", self.name)
        return Refused(f"{self.url}: {BEYOND} status {status}: {said}")

    def _served(self) -> str:
        """Return the names of what is served, nothing where the server does not say."""
        with suppress(Exception):
            return ", such as " + ", ".join(one.id for one in self._client.models.list().data[:5])
        return ""

    def _keep(self, key: str, found: Record) -> None:
        """Append an answer to the file."""
        with self._lock:
            self._records[key] = found
            if self.kept is not None:
                with self.kept.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"key": key, **found}) + "\n")


class Refused(ValueError):
    """Say that a server does not do what it is asked for."""


def read_chat(said: Any, request: Record) -> Record:
    """Return what is kept of a chat completion."""
    choice = said.choices[0]
    text = choice.message.content or ""
    logs = [[one.token, float(one.logprob)] for one in (choice.logprobs and choice.logprobs.content) or ()]
    sent = request["messages"][0]["content"]
    return {"text": text, "finish": choice.finish_reason, "logs": logs, **usage(said, sent + text)}


def read_text(said: Any, request: Record) -> Record:
    """Return what is kept of a completion that repeats its prompt: where tokens begin, and how likely each is."""
    choice, logs = said.choices[0], []
    told = choice.logprobs
    if told is not None and told.text_offset is not None:
        best = told.top_logprobs or [None] * len(told.token_logprobs)
        for at, value, top in zip(told.text_offset, told.token_logprobs, best, strict=True):
            logs.append([at, value, max(top.values()) if top else value])
    return {"text": "", "finish": choice.finish_reason, "logs": logs, **usage(said, request["prompt"])}


def usage(said: Any, text: str) -> Record:
    """Return how many tokens a request took, and whether the server has counted them."""
    if said.usage is None:
        return {"tokens": count_tokens(text), "counted": False}
    return {"tokens": int(said.usage.total_tokens), "counted": True}


def cut_text(text: str, until: str) -> str:
    r"""Return an answer up to the first letter that ends it.

    >>> cut_text("\nIt is 3.\nOr 4.", "\n")
    '\nIt is 3.'
    """
    at = next((k for k in range(len(text)) if has_ended(text[: k + 1], until)), len(text))
    return text[:at]


def read_records(kept: Path | None) -> dict[str, Record]:
    """Return what a file has of answers; a line that was not written whole counts as not there."""
    found: dict[str, Record] = {}
    if kept is not None and kept.is_file():
        for line in kept.read_text(encoding="utf-8", errors="replace").splitlines():
            with suppress(ValueError, KeyError, TypeError):
                row = json.loads(line)
                found[row.pop("key")] = row
        if not kept.read_bytes().endswith(b"\n"):
            with kept.open("a") as file:
                file.write("\n")
    return found
