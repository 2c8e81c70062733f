"""A tokenizer of bytes, a chat template, and a tiny model with them, for the tests of lookup."""

from measuring import make
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast


def byte_tokenizer():
    """Return a byte-level BPE tokenizer without a single merge."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({sign: k for k, sign in enumerate(["<s>", *alphabet])}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>")


def save_network(folder, tokenizer, name="llama", **changes):
    """Save a tiny model with as many tokens as a tokenizer has, with it, and return the folder."""
    tokenizer.save_pretrained(folder)
    make(name, vocab_size=len(tokenizer), **changes).save_pretrained(folder)
    return folder


TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
"""A chat template."""
