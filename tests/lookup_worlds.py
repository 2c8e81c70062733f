"""Tokenizers of several kinds, and a tiny model for each, for the tests of lookup."""

from measuring import make
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast


def word_tokenizer(words, lower=False):
    """Return a tokenizer of whole words, with an unknown one and no start token."""
    tokens = dict.fromkeys(["<unk>", *words])
    tokenizer = Tokenizer(models.WordLevel({word: k for k, word in enumerate(tokens)}, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    if lower:
        tokenizer.normalizer = normalizers.Lowercase()
    special = {"additional_special_tokens": ["<s>"]} if "<s>" in tokens else {}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", **special)


def named_tokenizer(keys=20, values=20):
    """Return a tokenizer of k0, k1, … and v0, v1, … with a start token and no unknown one."""
    tokens = ["<s>", *(f"k{n}" for n in range(keys)), *(f"v{n}" for n in range(values))]
    tokenizer = Tokenizer(models.WordLevel({token: k for k, token in enumerate(tokens)}))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>")


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
