"""Claims about remedies, and what each check notices if something is broken.

Thresholds. Those of R-oracle, R-alone, R-heads, R-words, R-windows, R-inside and R-alarm were written down on
2026-11-29 before their first run, and stand in the ledger. These were added on the same day, before the runs at 40
sets, of rotations, of real questions, and of orders by heads other than *last* (16 sets of which had been seen):

R-order, for ``heads-first``, ``heads-ends``, ``heads-last`` and ``reversed``
    helps if the 95 % interval over sets of the gain in right answers is above 0 and p by Holm, over all remedies of
    the table, is at most .05; contradicted if the interval is below 0 with such a p; else undecided.
R-average, for votes over 4 and 8 rotations
    as R-order.
R-real, ``point``
    heads that were chosen on invented facts point at the right passage of at least .75 of the real questions' prompts,
    and more often than a mean over all heads, with the interval over questions above 0.
R-real, ``alone``
    asking with the passage alone that they point at gives more right answers than asking with all: the interval over
    questions above 0; contradicted if it is below 0, else undecided.
R-alarm at 40 sets
    as before, on the second half of the sets: at least half of the wrong answers found, at most .1 of the right ones
    rung for, the interval of the difference above 0; and at least half of the questions that nothing answers. Only if
    the first holds does a command print it.
"""
