"""What helps a model to find a document, whatever its place: remedies that are run, each on the same prompts.

Thresholds, set on 2026-11-29 before the first run. Prompts are 40 sets of eight documents that
state the same kind of invented fact, each asked for in turn (320 questions), of sets on which no
head was chosen. Right is an answer of which every token is the likeliest, the answer's first words
given; under every condition the same answer is asked for. The gain of a remedy is the share of
right answers under it less that as is, over all places alike, paired by set.

*Helps*: the 95 % interval of the gain over sets is above 0, and p of the test that flips signs of
whole sets is at most .05 by Holm over all remedies that are run. *Does harm*: the interval is below
0 and the same p at most .05. Anything else is undecided. Beside each gain stand the worst place,
requests and tokens of an answer.

R-oracle: the right document alone helps, and at least .9 of the answers are right with it, so that
what is lost is lost to the other documents. Without documents at most .05 are right.

R-alone: asking each document alone and keeping one helps: the one that makes the question
likeliest, and the one whose own answer is most confident; each is a part.

R-heads: heads chosen on eight other sets point at the right document. (point) The best head does in
at least .9 of the 320 questions and in .75 at its worst place, a mean over all heads in less than
half. (keep) The document that the three best heads point at, alone, helps. (first, last) All eight,
ordered by those heads' attention with the best first or last, help.

R-order: an order of all eight documents helps: reversed; the best at both ends, by the likelihood
of the question. The first cannot help where the right document is at every place alike, but for
chance, and is there to show what chance does: it is to be undecided.

R-words: each of four changes of words helps: the question first and last, everything twice,
documents called by number and count, the first name in each document as its heading.

R-average: the mean of the probabilities over 2, 4 and 8 rotations of the documents helps, and a
vote of 8; each is a part.

R-windows: documents that do not see one another, all at the same positions, help.

R-inside: each of four changes inside helps: the ten best heads' logits times 1.5 and times 2, all
heads' times 1.25, and the first token's value set to zero.

R-alarm: where the document that the three best heads point at is not the one whose deletion costs the
answer given most, that answer is wrong. It holds if on the second half of the sets the alarm rings
for at least half of the wrong answers, for at most .1 of the right ones, and the interval over sets
of the difference is above 0. A limit, where one is needed, is the one that finds most errors of the
first half at no more than .1 of false alarms. (none) For questions that no document answers the
alarm is to ring for half of them with the limit set so.

R-real: on Liu et al.'s questions, eight passages, the right one at four of eight places, each remedy
*helps* by the same rule over questions, right answers a mean over the places, Holm over all remedies
that are run there. Set on 2026-11-29, when 25 questions had been asked as is and with the passage
alone that heads point at, and before any other remedy was asked: 50 questions each, unless the
page says fewer. Beside the three kinds that were best on invented facts (one passage alone, an order,
an average) stand changes of words and of the inside, and what a search alone would do: its first
passage alone, and its order with the best last or at both ends.
"""
