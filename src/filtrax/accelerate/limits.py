"""Limits of kernels of whole loops, each with the measurement that set it.

Times are those of value and gradient over 50 steps on an NVIDIA H200 (`filtrax bench --suite gpu`).
"UKF 10/8" is the unscented filter with 10 states and 8 observations. Where a number is called
computed, it was never compared with another one.
"""

import numpy as np

NEWEST_JAX = (0, 11)
"""The newest version of JAX that kernels were tested with; newer ones run plain loops. 0.11.2 on
the H200, 0.10.2 by lowering alone."""

TYPES = tuple(map(np.dtype, ("float32", "int32", "int64", "bool")))
"""Types of arrays in kernels; what a loop carries is float32."""

MOST_PARAMETERS = 1024
"""Numbers that all steps share, like parameters of models: every sequence reads them in every step,
and has a gradient of its own of them. Computed: gradients of 1,024 sequences are then 4 MB. The
EKF with a process network of 8,048 parameters takes 5.2 ms at a batch of 128 as a plain loop, of
products that all sequences share; as a kernel it was not measured."""

MOST_INPUTS = 1024
"""Numbers that a step reads beside what it carries. Some are computed for all steps before the
loop. Computed: a million steps then read 4 GB."""

MOST_OPERATIONS = 400
"""Operations of a step. The UKF 10/8, 292 of them, took 20 to 27 s to compile with its gradient,
and the EKF 4/2, 156 of them, 3 to 5 s."""

LARGEST_RESULT = 16384
"""Numbers of the largest intermediate result of one sequence. Computed: 128 registers of each of
128 threads, half of what they have. A product of two 16 x 16 matrices has 4,096 terms."""

MOST_NUMBERS = 8192
"""Numbers of the largest intermediate result of a program with several sequences. Computed: 64
registers of each of 128 threads."""

FEWEST_PROGRAMS = 1024
"""Programs that a large GPU runs side by side: fewer sequences are not put together. UKF 10/8 at
a batch of 1,024: from 9.8 to 6.9 ms, against 256 and together with one warp for each program."""

NUMBERS_PER_WARP = 1024
"""Numbers of the largest intermediate result for which another warp is added: threads that wait for
each other cost more than they help where there is little to do. Computed: 32 for each thread."""

MOST_WARPS = 4
"""Warps of a program, as many as sequences leave idle where a step has products of Triton. UKF 10/8
at a batch of 32: 2.6 ms with four; at 1,024: 5.2 ms with one, and four were slower."""

FEWEST_TERMS, SHORTEST_SIDE = 1024, 8
"""Terms of a product of two matrices, and its shortest side, from which on it is one to Triton: its
operands go through shared memory, where a table of all terms would fill registers. UKF 10/8 at a
batch of 1,024: from 15.7 to 9.8 ms."""

MOST_PLACES = 2**31 - 1
"""Numbers of an array of all sequences: places are counted in 32 bits."""
