import numpy as np
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from rollout_config import BASE, changed

from posbias import structured_kernels
from posbias.configuration import RolloutConfig, config_text, read_config
from posbias.rollout import masks
from posbias.rollout.influence import rollout_matrix
from posbias.rollout.kernels import attention_kernel
from posbias.rollout.position_bias import LogBias, NoBias


@pytest.fixture
def written(tmp_path):
    def write(config):
        path = tmp_path / "config.yaml"
        path.write_text(config if isinstance(config, str) else yaml.safe_dump(config))
        return path

    return write


def test_fields_become_kernels_and_schedule(written):
    config = read_config(written(BASE))
    kernels = config.kernels()
    assert kernels.diagonal.tolist() == [[1, 2], [3, 4]]
    assert kernels.slopes.tolist() == [[0.5, 0.25]] and config.lambdas().tolist() == [0.3, 0.6]
    P = rollout_matrix(kernels, [0.3, 0.6], 6)
    assert np.allclose(config.profile(), P[-1], atol=1e-13)


def test_window_weights_and_temperature_are_honoured(written):
    fields = {
        "mask_config__mask_type": "sliding_window",
        "mask_config__window_size": 3,
        "attention_config__head_weights": [[3.0, 1.0]],
        "attention_config__softmax_temperature": 2.0,
    }
    found = read_config(written(changed(**fields))).kernels()
    expected = structured_kernels(
        2, slope=[0.25, 0.125], diagonal=[[0.5, 1], [1.5, 2]], mask=masks.sliding_window(3), weights=[0.75, 0.25]
    )
    for t in range(2):
        assert np.allclose(found.dense(t, 6), expected.dense(t, 6), atol=1e-14)


def test_every_schedule_type(written):
    constant = changed(lambda_schedule_config={"schedule_type": "constant", "lambda_const": 0.2})
    assert read_config(written(constant)).lambdas().tolist() == [0.2, 0.2]
    decay = changed(lambda_schedule_config={"schedule_type": "power_decay", "lambda_0": 0.8, "beta": 2.0})
    assert np.allclose(read_config(written(decay)).lambdas(), [0.8, 0.2])


def test_tabs_are_read_as_spaces(written):
    text = yaml.safe_dump(BASE, default_flow_style=None).replace(", 0.6", "\t, 0.6")
    assert "\t" in text
    with pytest.raises(yaml.YAMLError):
        yaml.safe_load(text)
    assert read_config(written(text)).lambdas().tolist() == [0.3, 0.6]


def test_one_content_value_goes_to_every_head(written):
    config = read_config(written(changed(content_config={"diagonal_scores": [[2.0]], "base_scores": [[1.0]]})))
    assert config.kernels().diagonal.tolist() == [[2, 2]]


NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
TINY = [1e-05, 5e-324, 1e16, 1.7976931348623157e308, -0.0, 0.1]


@given(st.lists(NUMBERS, min_size=2, max_size=2), st.lists(NUMBERS, min_size=2, max_size=2))
@example(TINY[:2], TINY[2:4])
@example(TINY[4:], TINY[:2])
def test_a_written_configuration_is_read_back_equal(tmp_path_factory, diagonal, base):
    content = {"diagonal_scores": [diagonal], "base_scores": [base]}
    config = RolloutConfig.model_validate(changed(content_config=content))
    path = tmp_path_factory.mktemp("config") / "config.yaml"
    path.write_text(config_text(config), encoding="utf-8")
    assert read_config(path) == config
    read = yaml.safe_load(path.read_text(encoding="utf-8"))["content_config"]["diagonal_scores"][0]
    assert [type(x) for x in read] == [float, float], "other readers of YAML take a number for a text"


def test_every_field_is_written(written):
    fields = {
        "mask_config": {"mask_type": "sliding_window", "window_size": 3},
        "attention_config__head_weights": [[3.0, 1.0]],
        "lambda_schedule_config": {"schedule_type": "power_decay", "lambda_0": 1e-05, "beta": 2.0},
        "save_dir": 'C:\\results "é"',
    }
    config = read_config(written(changed(**fields)))
    assert read_config(written(config_text(config))) == config
    without = config.model_copy(update={"save_dir": None})
    assert read_config(written(config_text(without))) == without


@pytest.mark.parametrize(
    ("asked", "mask"),
    [
        ({}, masks.causal()),
        ({"mask_type": "full"}, masks.full()),
        ({"mask_type": "sliding_window", "window_size": 2}, masks.sliding_window(2)),
    ],
)
def test_every_mask(written, asked, mask):
    assert read_config(written(changed(mask_config=asked))).kernels().mask == mask


def test_biases_of_layers_say_how_many_heads_there_are_and_heads_have_their_weights(written):
    log = {"kind": "log", "alpha": 1.5}
    short = {"sequence_length": 6, "num_layers": 2, "position_bias": [[log, *[{"kind": "none"}] * 2], [log] * 3]}
    short["lambda_schedule_config"] = {"schedule_type": "constant", "lambda_const": 0.4}
    assert read_config(written(short)).attention_config.num_heads == 3
    weighed = read_config(written(short | {"attention_config": {"num_heads": 3, "head_weights": [[3.0, 1.0, 0.0]]}}))
    each = [attention_kernel(bias.logits(6), masks.causal()) for bias in (LogBias(1.5), NoBias())]
    for t, weights in ((0, (0.75, 0.25)), (1, (1, 0))):
        expected = weights[0] * each[0] + weights[1] * each[1]
        np.testing.assert_allclose(weighed.kernels().dense(t, 6), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("num_layers", 0, "num_layers: expected greater than 0, received 0"),
        ("save", 1, "save: expected no such field, received 1"),
        ("lambda_schedule_config__lambdas_custom", ..., "lambda_schedule_config.lambdas_custom: expected a value, rec"),
    ],
)
def test_what_is_wrong_is_said_in_short(written, field, value, said):
    with pytest.raises(ValueError, match=f"config.yaml: {said}"):
        read_config(written(changed(**{field: value})))
