"""A parameter file in the form that PECOS publishes: `__meta__` everywhere, some keys retired."""

from typing import Any


def meta(name: str) -> dict[str, Any]:
    return {"__meta__": {"class_fullname": name}}


def indexer(**values: Any) -> dict[str, Any]:
    return {
        **meta("pecos.xmc.base###HierarchicalKMeans.TrainParams"), "nr_splits": 16, "min_codes": None,
        "max_leaf_size": 16, "imbalanced_ratio": 0.0, "imbalanced_depth": 100, "spherical": True, "seed": 0,
        "kmeans_max_iter": 20, "threads": -1, **values,
    }  # fmt: skip


def matcher(**values: Any) -> dict[str, Any]:
    return {
        **meta("pecos.xmc.xtransformer.matcher###TransformerMatcher.TrainParams"),
        "model_shortcut": "bert-base-uncased", "negative_sampling": "tfn+man",
        "loss_function": "weighted-squared-hinge", "bootstrap_method": "weighted-linear", "lr_schedule": "linear",
        "threshold": 0.001, "hidden_dropout_prob": 0.1, "batch_size": 32, "batch_gen_workers": 16,
        "max_active_matching_labels": 1000, "max_num_labels_in_gpu": 65536, "max_steps": 600,
        "max_no_improve_cnt": -1, "num_train_epochs": 10, "gradient_accumulation_steps": 1, "weight_decay": 0.0,
        "max_grad_norm": 1.0, "learning_rate": 5e-05, "adam_epsilon": 1e-08, "warmup_steps": 100, "logging_steps": 50,
        "save_steps": 200, "cost_sensitive_ranker": False, "use_gpu": True, "checkpoint_dir": "", "cache_dir": "",
        "init_model_dir": "", **values,
    }  # fmt: skip


def linear_level(**values: Any) -> dict[str, Any]:
    return {
        **meta("pecos.xmc.base###MLModel.TrainParams"), "threshold": 0.001, "max_nonzeros_per_label": None,
        "solver_type": "L2R_L2LOSS_SVC_DUAL", "Cp": 1.0, "Cn": 2.0, "max_iter": 100, "eps": 0.1, "bias": 1.0,
        "threads": -1, "verbose": 0, "newton_eps": 0.01, **values,
    }  # fmt: skip


def ranker() -> dict[str, Any]:
    return {
        **meta("pecos.xmc.xlinear.model###XLinearModel.TrainParams"),
        "mode": "full-model",
        "ranker_level": 1,
        "nr_splits": 16,
        "min_codes": None,
        "shallow": False,
        "rel_mode": "induce",
        "rel_norm": "l1",
        "hlm_args": {
            **meta("pecos.xmc.base###HierarchicalMLModel.TrainParams"),
            "neg_mining_chain": ["tfn", "tfn", "tfn+man"],
            "model_chain": [linear_level(), linear_level(), linear_level(Cp=2.0, Cn=4.0)],
        },
    }


def ranker_pred() -> dict[str, Any]:
    level = meta("pecos.xmc.base###MLModel.PredParams")
    return {
        **meta("pecos.xmc.xlinear.model###XLinearModel.PredParams"),
        "hlm_args": {
            **meta("pecos.xmc.base###HierarchicalMLModel.PredParams"),
            "model_chain": [
                {**level, "only_topk": 75, "post_processor": "l3-hinge"},
                {**level, "only_topk": 75, "post_processor": "l3-hinge"},
                {**level, "only_topk": 25, "post_processor": "noop"},
            ],
        },
    }


def xtransformer() -> dict[str, Any]:
    matcher_pred = {
        **meta("pecos.xmc.xtransformer.matcher###TransformerMatcher.PredParams"),
        "only_topk": 5,
        "post_processor": "l3-hinge",
        "ensemble_method": "concat-only",
        "truncate_length": 128,
    }
    return {
        "train_params": {
            **meta("pecos.xmc.xtransformer.model###XTransformer.TrainParams"),
            "preliminary_indexer_params": indexer(min_codes=16),
            "refined_indexer_params": indexer(nr_splits=8),
            "matcher_params_chain": [matcher(max_steps=steps) for steps in (600, 800, 1200)],
            "ranker_params": ranker(),
            "do_fine_tune": True,
            "only_encoder": False,
            "fix_clustering": False,
            "max_match_clusters": 32768,
            "save_emb_dir": "",
        },
        "pred_params": {
            **meta("pecos.xmc.xtransformer.model###XTransformer.PredParams"),
            "matcher_params_chain": [dict(matcher_pred) for _ in range(3)],
            "ranker_params": ranker_pred(),
        },
    }


def xlinear() -> dict[str, Any]:
    return {"train_params": ranker(), "pred_params": ranker_pred(), "indexer_params": indexer()}
