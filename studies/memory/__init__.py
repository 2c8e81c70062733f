"""Networks trained on texts of known memory: what the end of a profile follows, and whether the beginning is there.

A text of memory k has letters of which each is, with probability 0.9, one of the k letters before it, all alike, and
else any of 16. Optimal prediction uses the last k letters alike, and no other. In the text *copy* the letter is the one
64 places back instead; in *none* all letters are independent, so that there is nothing to use. Networks of two layers
have ALiBi, rotary positions or none, and three seeds each. How many steps a text takes was set by the loss alone.

A profile is what each of 128 letters has of the next one, by use (total variation of the prediction if the letter is
replaced) or by gradient. Its *reach* is the furthest distance from the next letter, the first eighth of the prompt left
out, at which it is half of its greatest value there or more: k if prediction is optimal.

Thresholds, set on 2026-11-29 before any profile was measured.

Y-memory, the end: it follows the text if in every network that has learnt its text (of what optimal prediction gains
over guessing, half or more) the reach on this text is at most twice the memory and at least half of it,
for memories of 1, 8 and 64 and for the copy. It is refuted if with one encoding, for one text that all three seeds have
learnt, no seed's reach is. Anything else is open. By use first, then by gradient.

Y-memory, the beginning: a left arm appears in all networks if on independent letters, in which place tells nothing, the
first eighth of each network's profile by use has more than an equal share by 0.10 or more, with a 95 % interval over
prompts above 1. It is refuted if one network's whole interval lies below 1.10. Said of the gradient, too.
"""
