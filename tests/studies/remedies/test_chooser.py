"""The toy to which the page's chooser is held: another passage, another score, and the question is what is scored."""

import pytest
import torch

from studies.remedies import chooser


def test_the_scores_are_of_the_question_after_each_passage_alone():
    (model, tokenizer, question, passages, instruction), found = chooser.score_toy()
    assert len(passages) == len(found) == len({*found}) == 3
    for passage, likely in zip(passages, found, strict=True):
        before = f"User: {instruction}\n\nDocument [1]{passage}\nAssistant: Question:"
        ids = tokenizer(f"{before} {question}", add_special_tokens=False, return_tensors="pt").input_ids
        first = len(tokenizer(before, add_special_tokens=False).input_ids)
        with torch.no_grad():
            loss = torch.nn.functional.cross_entropy(model(ids).logits[0, first - 1 : -1], ids[0, first:])
        assert likely == pytest.approx(-float(loss) * (ids.shape[1] - first), abs=1e-3)
