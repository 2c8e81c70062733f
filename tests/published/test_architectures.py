import pytest
from rollout_config import changed

from posbias.published.architectures import CONVENTIONS, architecture_faithful
from posbias.published.configuration import RolloutConfig

THREE_HEADS = changed(
    attention_config__num_heads=3,
    attention_config__alibi_slopes=[[0.5, 0.3, 0.1]],
    content_config={"diagonal_scores": [[2.0, 4.0, 6.0]], "base_scores": [[8.0, 10.0, 12.0]]},
)


def numbers(config):
    kernels = config.kernels()
    return kernels.slopes[0].tolist(), kernels.diagonal[0].tolist(), kernels.base[0].tolist()


@pytest.mark.parametrize(("family", "by"), [("bloom", 1), ("mpt", 1), ("falcon", 2)])
def test_slopes_follow_the_rule_and_content_is_scaled(family, by):
    """Falcon scales positions too."""
    config = RolloutConfig.model_validate(THREE_HEADS)
    faithful = architecture_faithful(config, family, 4)
    assert numbers(faithful) == ([1 / 16 / by, 1 / 256 / by, 1 / 4 / by], [1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
    for field in ("sequence_length", "num_layers", "mask_config", "lambda_schedule_config"):
        assert getattr(faithful, field) == getattr(config, field)
    assert config == RolloutConfig.model_validate(THREE_HEADS)


def test_one_correction_at_a_time():
    config = RolloutConfig.model_validate(THREE_HEADS)
    slopes, content = (architecture_faithful(config, "bloom", 4, **{which: False}) for which in ("content", "slopes"))
    assert numbers(slopes) == ([1 / 16, 1 / 256, 1 / 4], *numbers(config)[1:])
    assert numbers(content) == (numbers(config)[0], [1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
    assert architecture_faithful(config, "bloom", 4, slopes=False, content=False) == config


def test_every_family_of_the_published_models_has_a_row():
    from posbias.published.numbers import MODELS

    assert {model.family for model in MODELS.values()} == set(CONVENTIONS)
