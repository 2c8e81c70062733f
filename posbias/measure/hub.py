"""What can be said of an id on the hub without waiting for it: that it looks like a path, or that nobody answers."""

from __future__ import annotations

import socket
from functools import cache
from pathlib import Path
from threading import Event, Thread
from urllib.parse import urlsplit
from urllib.request import getproxies

from posbias import errors
from posbias.measure.gguf_file import find_gguf
from posbias.shipped import PREFIX

WANTED = "a directory, or an id that the hub answers for"
FILES = (".json", ".jsonl", ".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".nc", ".csv", ".txt", ".yaml")
"""Ends of names of files, which no id has."""
PATIENCE = 3.0
"""Seconds in which the hub is to accept a connection: its client asks again and again, for half a minute."""


def check_id(field: str, name: str, revision: str | None = None) -> None:
    """Raise ValueError for a name that is no directory and looks like one, or is an id when the hub does not answer.

    A file that the hub's client keeps counts as an answer.

    >>> check_id("model", "./weights")
    Traceback (most recent call last):
    ValueError: model ./weights: expected a directory, or an id that the hub answers for, received no such directory
    """
    path = Path(name)
    if not name or path.is_dir() or find_gguf(name) or name.startswith(PREFIX):
        return
    beside = path.parent.is_dir() and len(path.parts) > 1
    if beside or name[0] in ".~/" or name.count("/") > 1 or path.suffix in FILES:
        inside = f" in {path.parent}, which is there" if beside else ""
        raise errors.invalid(f"{field} {name}", WANTED, f"no such directory{inside}")
    from huggingface_hub import constants, try_to_load_from_cache

    kept = (try_to_load_from_cache(name, file, revision=revision) for file in ("config.json", "tokenizer_config.json"))
    if constants.HF_HUB_OFFLINE or any(isinstance(file, str) for file in kept) or getproxies():
        return  # the client says at once what is wrong, or goes by a way of its own
    if not answers(constants.ENDPOINT):
        raise errors.invalid(f"{field} {name}", WANTED, "no such directory, and no answer from the hub")


@cache
def answers(endpoint: str) -> bool:
    """Tell whether a server accepts a connection soon, asked once; its name may take longer to be looked up."""
    address, said = urlsplit(endpoint), Event()

    def ask() -> None:
        try:
            socket.create_connection((address.hostname, address.port or 443), PATIENCE).close()
        except OSError:
            return
        said.set()

    asking = Thread(target=ask, daemon=True)
    asking.start()
    asking.join(PATIENCE)
    return said.is_set()
