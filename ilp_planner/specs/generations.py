"""Generations of GPUs: major numbers of their compute capability (CUDA C++ Programming Guide, table
of compute capabilities)."""

AMPERE = 8  # A100, A800; and Ada (8.9): L4, L40S
HOPPER = 9  # H100, H200, H800, H20, GH200
BLACKWELL = 10  # B200, GB200; workstations' are 12
