"""A job with six plans, and a script that runs one of them at once: for `tune`."""

SIX = """\
solve small.toml pair.toml --global-batch-size 16 --tp 1,2 --pp 1 --cp 1 --micro-batch-size 2,4,8
--recompute none --sharding none --output plan.json"""
MODEL = """\
name = "small"
family = "decoder"
precision = "bf16"

[architecture]
layers = 2
hidden = 128
heads = 4
kv_heads = 2
ffn = 256
sequence = 48
vocab = 256
gated = true
bias = false
norm = "rmsnorm"
positions = "rope"
dropout = 0.0
"""
PAIR = """\
name = "pair"

[[nodes]]
device = "A100"
count = 1
devices = 2

[devices.A100]
gpu = "A100-80GB"
"""
# A script's own cost, which the planner does not know: of tp and micro-batch, in milliseconds. The
# host takes about as long for so small a model.
HIDDEN = """\
import os, re, sys
text = open(sys.argv[1]).read()
tp, micro = (int(re.search(rf"--{name}-size (\\d+)", text)[1])
             for name in ("tensor-model-parallel", "micro-batch"))
if (tp, micro) == (1, 8):
    sys.exit("torch.OutOfMemoryError: CUDA out of memory.")
if (tp, micro) == (2, 8):
    sys.exit("pretrain_gpt.py: error: unrecognized arguments")
steps = int(os.environ["TRAIN_ITERS"])
for step in range(1, steps + 1):
    ms = 20.0 * (1 + 0.1 * tp + 0.8 / micro) * (1 + 0.002 * (step % 3))
    print(f" iteration {step:8}/{steps:8} | elapsed time per iteration (ms): {ms:.3f} "
          f"| global batch size: {16:5} |")
"""
FILES = {"small.toml": MODEL, "pair.toml": PAIR, "hidden.py": HIDDEN}
