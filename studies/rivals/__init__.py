"""Others' ways to say which tokens of a prompt count, beside the influence in SmolLM2.

Each is its paper's equation in a plain form, for Llama's modules, as the docstrings say.

Threshold, set on 2026-11-29 before any run. P-rivals, of predictions that are made from 16
documents of one text (value zeroing: 4) and judged by the influence in another (SmolLM2, 256
tokens, built-in text and Wikipedia, mean of both ways), documents resampled on both sides:
prediction A is nearer than B if the 95 % interval of W₁(A) - W₁(B) is below 0, and the row is
contradicted in a part if it is above 0; else the part is undecided. Parts: *first token*: attention
rollout without the first token (Abnar and Zuidema's half, and by λ) against equal shares; *norms*:
norms with the residual in them (Kobayashi 2021) and GlobEnc against measured attention by λ;
*ALTI-Logit* against the same.
"""
