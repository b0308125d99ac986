"""Wide ResNet with bottleneck blocks (Zagoruyko, Komodakis 2016), with the operators of Aceso."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ilp_planner.specs.architecture import Parameters, check_counts, check_fields

EXPANSION = 4  # output channels of a block over its base channels


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """One convolution on square images. size: pixels along an edge of its output."""

    inputs: int
    outputs: int
    kernel: int
    stride: int
    size: int

    @property
    def parameters(self) -> Parameters:
        """Return its weights; there is no bias before a batch normalisation."""
        return Parameters(split=self.kernel**2 * self.inputs * self.outputs)

    @property
    def flops(self) -> int:
        """Return the forward FLOPs of one sample."""
        return 2 * self.size**2 * self.kernel**2 * self.inputs * self.outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One bottleneck block: convolutions 1 x 1, 3 x 3, 1 x 1, and the residual.

    inputs, base, wide, outputs: channels; input_size, output_size: pixels along an edge.
    projects: a 1 x 1 convolution brings the residual to the shape of the output.
    """

    name: str
    inputs: int
    base: int
    wide: int
    input_size: int
    stride: int
    projects: bool

    @property
    def outputs(self) -> int:
        """Return the channels after the block."""
        return EXPANSION * self.base

    @property
    def output_size(self) -> int:
        """Return the pixels along an edge after the block."""
        return self.input_size // self.stride

    @property
    def convolutions(self) -> dict[str, Convolution]:
        """Return the block's convolutions by operator name."""
        out, size = self.output_size, self.input_size
        found = {
            f"{self.name}-conv1": Convolution(
                inputs=self.inputs, outputs=self.base, kernel=1, stride=1, size=size
            ),
            f"{self.name}-conv2": Convolution(
                inputs=self.base, outputs=self.wide, kernel=3, stride=self.stride, size=out
            ),
            f"{self.name}-conv3": Convolution(
                inputs=self.wide, outputs=self.outputs, kernel=1, stride=1, size=out
            ),
        }
        if self.projects:
            found[f"{self.name}-downsample"] = Convolution(
                inputs=self.inputs, outputs=self.outputs, kernel=1, stride=self.stride, size=out
            )
        return found

    @property
    def operators(self) -> tuple[str, ...]:
        """Return the block's part of the chain."""
        steps = ("conv1", "bn1", "conv2", "bn2", "conv3", "bn3", "downsample", "relu")
        return tuple(f"{self.name}-{step}" for step in steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class WideResNet:
    """Dimensions of a Wide ResNet.

    blocks: bottleneck blocks in each group; a group halves the image and doubles the channels of
        the one before.
    in_channels: base channels of the first group.
    width_factor: widening of the 3 x 3 convolutions.
    image: pixels along an edge of the input. classes: outputs.
    """

    blocks: tuple[int, ...]
    in_channels: int
    width_factor: int
    image: int = 224
    classes: int = 1024

    family: ClassVar[str] = "resnet"
    micro_batch_sizes: ClassVar[tuple[int, ...]] = (16, 32, 48, 64)

    def __post_init__(self) -> None:
        if not self.blocks:
            raise ValueError("blocks must have at least one group, found none")
        for count in self.blocks:
            check_counts(blocks=count)
        check_fields(self, "in_channels", "width_factor", "image", "classes")
        reduction = 2 ** (len(self.blocks) + 1)
        if self.image % reduction:
            raise ValueError(
                f"image must be divisible by {reduction} for {len(self.blocks)} groups of blocks, "
                f"found {self.image}"
            )

    @property
    def stem(self) -> Convolution:
        """Return the first convolution, 7 x 7."""
        return Convolution(
            inputs=3, outputs=self.in_channels, kernel=7, stride=2, size=self.image // 2
        )

    def each_block(self) -> Iterator[Block]:
        """Yield the blocks along the chain."""
        inputs, size = self.in_channels, self.image // 4
        for group, count in enumerate(self.blocks):
            base = self.in_channels * 2**group
            for number in range(count):
                block = Block(
                    name=f"block-{group}-{number}",
                    inputs=inputs,
                    base=base,
                    wide=base * self.width_factor,
                    input_size=size,
                    stride=2 if group > 0 and number == 0 else 1,
                    projects=number == 0,
                )
                yield block
                inputs, size = block.outputs, block.output_size

    @property
    def features(self) -> int:
        """Return the channels after the last block."""
        return EXPANSION * (self.in_channels << (len(self.blocks) - 1))

    @property
    def operators(self) -> tuple[str, ...]:
        """Return the chain: 8 operators to a block, and 6."""
        inside = [name for block in self.each_block() for name in block.operators]
        return ("conv1", "bn1", "relu1", "maxpool", *inside, "avgpool", "fc")

    @property
    def convolutions(self) -> dict[str, Convolution]:
        """Return every convolution by operator name."""
        found = {"conv1": self.stem}
        for block in self.each_block():
            found.update(block.convolutions)
        return found

    @property
    def parameters(self) -> dict[str, Parameters]:
        """Return the parameters of every operator; only convolutions are split."""
        found = {"bn1": Parameters(whole=2 * self.in_channels)}
        for block in self.each_block():
            for step, channels in enumerate((block.base, block.wide, block.outputs), 1):
                found[f"{block.name}-bn{step}"] = Parameters(whole=2 * channels)
        found.update((name, conv.parameters) for name, conv in self.convolutions.items())
        found["fc"] = Parameters(whole=(self.features + 1) * self.classes)
        return found

    @property
    def flops(self) -> dict[str, int]:
        """Return forward FLOPs per operator and sample."""
        found = {name: conv.flops for name, conv in self.convolutions.items()}
        found["fc"] = 2 * self.features * self.classes
        return found

    @property
    def masked_flops(self) -> int:
        """Return 0: nothing is masked."""
        return 0

    @property
    def masked(self) -> dict[str, float]:
        """Return nothing."""
        return {}

    @property
    def tokens(self) -> int:
        """Return 0: samples are images."""
        return 0

    @property
    def tensor_parts(self) -> int:
        """Return the parts that tensor parallelism divides: channels."""
        return self.in_channels
