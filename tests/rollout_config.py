"""A rollout configuration in the authors' format, and ways to change it."""

import yaml

BASE = {
    "sequence_length": 6,
    "num_layers": 2,
    "mask_config": {"mask_type": "causal", "window_size": None},
    "attention_config": {
        "num_heads": 2, "alibi_slopes": [[0.5, 0.25]], "head_weights": None, "softmax_temperature": 1.0,
    },
    "content_config": {"diagonal_scores": [[1.0, 2.0], [3.0, 4.0]], "base_scores": [[5.0, 6.0], [7.0, 8.0]]},
    "lambda_schedule_config": {"schedule_type": "custom", "lambdas_custom": [0.3, 0.6]},
    "save_dir": "./results",
}  # fmt: skip


def changed(**fields):
    """BASE with dotted fields replaced; the value ... removes one."""
    config = yaml.safe_load(yaml.safe_dump(BASE))
    for dotted, value in fields.items():
        *parents, last = dotted.split("__")
        part = config
        for key in parents:
            part = part[key]
        if value is ...:
            del part[last]
        else:
            part[last] = value
    return config
