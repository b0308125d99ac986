"""A T5 and a Wide ResNet that are measured in milliseconds."""

from ilp_planner.profiler.measure.wish import chain_job
from ilp_planner.specs.resnet import WideResNet
from ilp_planner.specs.t5 import T5

SIDES = T5(
    layers=2,
    hidden=32,
    heads=4,
    kv_channels=8,
    ffn=64,
    encoder_sequence=16,
    decoder_sequence=8,
    vocab=128,
)
IMAGES = WideResNet(blocks=(2, 1), in_channels=4, width_factor=2, image=32, classes=8)
CHAINS = {"t5": SIDES, "resnet": IMAGES}


def shard(model, tp=1, micro_batch=2, dtype="fp32"):
    return chain_job(model, tp=tp, micro_batch=micro_batch, dtype=dtype)
