"""Imported before lm-eval and transformers: they ask no network, and draw and tell nothing but errors."""

import os

os.environ.update(
    HF_HUB_OFFLINE="1",
    HF_DATASETS_OFFLINE="1",
    HF_DATASETS_DISABLE_PROGRESS_BARS="1",
    TQDM_DISABLE="1",
    LMEVAL_LOG_LEVEL="ERROR",
    TOKENIZERS_PARALLELISM="false",
)
