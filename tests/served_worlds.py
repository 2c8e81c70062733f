"""Servers with OpenAI's API of a few lines, which answer as a test says, or misbehave."""

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

SECRET = "sk-very-secret-key"


def chat(text="It is 7.\nNot 8.", finish="stop", logs=True):
    told = [{"token": t, "logprob": -0.5, "top_logprobs": []} for t in (text[:5], text[5:])]
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": finish, "index": 0}
    choice["logprobs"] = {"content": told} if logs else None
    return {"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}}


def echoed(prompt):
    """Return a completion that repeats its prompt, a token a letter, and adds one; capitals are not the likeliest.

    The token itself is listed before the likeliest one, as vLLM does.
    """
    text = f"{prompt}."
    letters = {"tokens": [*text], "text_offset": [*range(len(text))]}
    letters["token_logprobs"] = [None, *[-2.0 if x.isupper() else -1.0 for x in text[1:]]]
    letters["top_logprobs"] = [None, *[{x: -2.0 if x.isupper() else -1.0} | {"a": -1.0} for x in text[1:]]]
    return {"choices": [{"text": text, "finish_reason": "length", "index": 0, "logprobs": letters}]}


@contextmanager
def server(answer):
    """Serve ``answer(path, request)``: a status and a body, which is cut off where it ends in None."""
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.append((self.path, request, self.headers["Authorization"]))
            status, body = answer(self.path, request)
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data) + 10 * data.endswith(b"...")))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self):
            self.do_POST() if "Content-Length" in self.headers else self.send_error(404)

        def log_message(self, *_):
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=httpd.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{httpd.server_port}/v1", seen
    finally:
        httpd.shutdown()
        httpd.server_close()
