"""What each schema is of."""

OUTPUTS = {
    "solve": "What `ilp-plan solve --json` prints: a plan, how it was judged and what is proved",
    "evaluate": "What `ilp-plan evaluate --json` prints: a saved plan, judged again",
    "simulate": "What `ilp-plan simulate --json` prints: the iteration of a plan, by its schedule",
    "compare": "What `ilp-plan compare --json` prints: plans and solvers on one problem",
    "why": "What `ilp-plan why --json` prints: what limits a plan, and what would help",
    "why-not": "What `ilp-plan why --not ... --json` prints: why not another plan",
    "replan": "What `ilp-plan replan --json` prints: what to do with a plan on a changed cluster",
    "fit": "What `ilp-plan fit --json` prints: whether a job fits, and what makes it fit",
    "doctor": "What `ilp-plan doctor --json` prints: why the steps of a run take as long",
    "sweep": "What `ilp-plan sweep --json` prints: a row for each point",
    "analyze": "What `ilp-plan analyze --json` prints: what a training job holds and sends",
    "analyze-costs": "What `ilp-plan analyze --json` prints of a plan that is no training job",
    "models": "What `ilp-plan models --json` prints: the catalogue",
    "model-summary": "What `ilp-plan models MODEL --json` prints",
    "gpus": "What `ilp-plan gpus --json` prints: the table of GPUs",
    "runtimes": "What `ilp-plan runtimes --json` prints: the training systems",
    "runtime": "What `ilp-plan runtimes RUNTIME --json` prints",
    "calibrate": "What `ilp-plan calibrate --json` prints: the constants of a machine",
    "profile-check": "What `ilp-plan profile check --json` prints",
    "profile-predict": "What `ilp-plan profile predict --json` prints",
}
FILES = {
    "plan": "A saved plan, with its inputs, its proof and how the search went",
    "sweep-journal": "A line of the journal beside the table of a sweep",
    "model": "A model's file, TOML",
    "cluster": "A cluster's file, TOML",
    "constraints": "A file of constraints, TOML",
    "table": "A row of a native table of profiles or links, CSV; empty cells are left out",
    "runs": "A row of a table of runs for `ilp-plan calibrate`, CSV; empty cells are left out",
    "sweep-table": "A row of the table of a sweep, CSV or Parquet",
}
