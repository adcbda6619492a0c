"""Training filters and models end to end: one of them with `fit`, ensembles with `Training`."""

from filtrax.training._em import Learned, fit_em
from filtrax.training._fit import DivergenceError, History, Progress, fit
from filtrax.training._smoothing import smoothing
from filtrax.training.checkpoints import load, load_parts, save, save_parts
from filtrax.training.ensembles import Training
from filtrax.training.evaluation import ObjectiveScore, encode, evaluate, tracking
from filtrax.training.objectives import (
    LikelihoodContrast,
    StepSchedule,
    Weighted,
    filtering,
    l2,
    measurement_nll,
    process_nll,
    sensor_nll,
    weighted,
)
from filtrax.training.protocols import (
    AbstractAugmentation,
    AbstractObjective,
    AbstractScore,
    Augmentation,
    Objective,
    Score,
)
from filtrax.training.selection import Ensemble
from filtrax.training.stages import Stage
from filtrax.training.trainer import EpochRecord

__all__ = [
    "AbstractAugmentation",
    "AbstractObjective",
    "AbstractScore",
    "Augmentation",
    "DivergenceError",
    "Ensemble",
    "EpochRecord",
    "History",
    "Learned",
    "LikelihoodContrast",
    "Objective",
    "ObjectiveScore",
    "Progress",
    "Score",
    "Stage",
    "StepSchedule",
    "Training",
    "Weighted",
    "encode",
    "evaluate",
    "filtering",
    "fit",
    "fit_em",
    "l2",
    "load",
    "load_parts",
    "measurement_nll",
    "process_nll",
    "save",
    "save_parts",
    "sensor_nll",
    "smoothing",
    "tracking",
    "weighted",
]
