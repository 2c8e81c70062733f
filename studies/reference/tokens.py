"""Token ids of the reference models: a byte-level BPE, the training stream, and the held-out documents."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt16
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from studies.reference.texts import documents

VOCABULARY = 2048
END, START = "<|endoftext|>", "<s>"
"""Special tokens 0 and 1: between documents of the training stream, and in front of every text of models that
were trained with a start token."""


@dataclass(frozen=True)
class Texts:
    """Hold what a model is trained and evaluated on: the ids of a stream, and the first ids of held-out documents."""

    tokenizer: Tokenizer
    train: UInt16[np.ndarray, "M"]
    held_out: list[np.ndarray]


def python_texts() -> Texts:
    """Return the texts that come with this Python, with a tokenizer trained on their training part."""
    texts = [document.text for document in documents("train")]
    tokenizer = train_tokenizer(texts)
    held_out = (document.text for document in documents("held-out"))
    return Texts(tokenizer, stream(tokenizer, texts), whole_prefixes(tokenizer, held_out, most=1024, least=256))


def train_tokenizer(texts: Iterable[str], size: int = VOCABULARY) -> Tokenizer:
    """Return a byte-level BPE of ``size`` tokens: it splits any text into tokens and gives it back unchanged."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=[END, START], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def wrapped(tokenizer: Tokenizer, start: bool) -> PreTrainedTokenizerFast:
    """Return the tokenizer as transformers saves and loads it, with or without the start token in front."""
    copy = Tokenizer.from_str(tokenizer.to_str())
    if start:
        copy.post_processor = processors.TemplateProcessing(single=f"{START} $A", special_tokens=[(START, 1)])
    return PreTrainedTokenizerFast(tokenizer_object=copy, bos_token=START, eos_token=END)


def stream(tokenizer: Tokenizer, texts: Iterable[str]) -> UInt16[np.ndarray, "M"]:
    """Return the ids of all texts, one after another, each ended by :data:`END`."""
    parts = [np.array([*encoding.ids, 0], dtype=np.uint16) for encoding in tokenizer.encode_batch(list(texts))]
    return np.concatenate(parts)


def whole_prefixes(tokenizer: Tokenizer, texts: Iterable[str], most: int, least: int) -> list[np.ndarray]:
    """Return the first ids of each text, as many as ``most``, such that their text gives the same ids again.

    A cut inside a word or a character can change the last ids: up to 16 are then dropped. Texts with fewer than
    ``least`` ids are left out.
    """
    out = []
    for encoding in tokenizer.encode_batch(list(texts)):
        ids = encoding.ids[:most]
        for k in range(len(ids), max(len(ids) - 16, least - 1), -1):
            if tokenizer.encode(tokenizer.decode(ids[:k], skip_special_tokens=False)).ids == ids[:k]:
                out.append(np.array(ids[:k], dtype=np.uint16))
                break
    return out
