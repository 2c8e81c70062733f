"""The first token as a sink: what is left of a profile and of the answers if the sink gives nothing.

Heads that rest on the first token write its value, times their weight, into what follows. Contributions say that this
is little. They are computed from the same values, so here the value is taken away and everything is measured again.

Arms: ``whole``, the model as it is; ``silent``, the first token's value is zero in all layers, so that attention to it
goes to nobody; ``hidden``, no later query sees the first token, so that its attention goes to the other keys.

Threshold, set on 2026-11-29 before any run. Y-sink: SmolLM2's sink matters as a place to rest, not by what it says, if
with ``silent`` W₁ between profiles by gradient is at most 0.05, neither end (first eighth without the first token,
last eighth) moves by more than 0.10 of an equal share, and the loss on text grows by at most 0.05 nats, each with its
whole 95 % interval over documents. It is refuted if one of the intervals lies wholly beyond its limit. By answers:
right answers among eight competing documents are the same if the interval over sets of their change lies within 0.10.
"""
