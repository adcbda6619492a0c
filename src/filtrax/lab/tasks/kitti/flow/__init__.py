"""Speed and heading rate from two images, without learning: what their optical flow tells.

The camera is known (focal lengths, height over the road, distance to the rear axle), the depth of
the scene is not. A pixel that looks along (a, s, 1) now, at a point for which the ratio of the
distance d that the car drove to its depth is ρ, was seen before, if the car turned by ψ, at

    n  = cos ψ − a sin ψ + ρ,
    a' = (a cos ψ + sin ψ + (sin(ψ/2) + l sin ψ / d + drift) ρ) / n,
    s' = (s + tilt) / n − tilt + pitch + roll · a',

where the camera is l in front of the rear axle, about which a car turns, drift is what it moves
sideways beyond that, tilt is where the horizon is, and pitch and roll are how the car rocked. Each
pixel shows the road, where ρ = d (s + tilt) / height, or something else with a ρ of its own, or
nothing that was seen before.

1. On a grid of turns, at half the size, and then on one of pitches, the motion is chosen at which
   the images differ least, with the three cases and several values of ρ summed out.
2. Gauss-Newton steps improve motion and ρ at once: ρ is eliminated from the normal equations of
   each 3 × 3 pixels (Schur complement), and the probabilities of the cases are weights, as in
   expectation maximization. They are divided by the variance of the differences that are left
   around a pixel, because these are not alike: what is far away hardly changes from one image to
   the next, and what passes by is seen at another size and between other pixels.

It is the method of Lucas and Kanade (An iterative image registration technique, IJCAI 1981) for a
moving camera, with depths as in direct visual odometry (Engel, Koltun and Cremers, Direct sparse
odometry, 2018). Nothing is fitted to data; the scale comes from the height of the camera.
"""

from filtrax.lab.tasks.kitti.flow.estimation import (
    estimate,
    estimate_motion,
    rough_distance,
    velocities,
)
from filtrax.lab.tasks.kitti.flow.refinement import Estimate

__all__ = ["Estimate", "estimate", "estimate_motion", "rough_distance", "velocities"]
