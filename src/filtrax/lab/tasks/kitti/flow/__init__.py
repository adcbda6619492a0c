"""Speed and heading rate from the optical flow of two images, without learning.

The camera is known (focal lengths, height over the road, distance to the rear axle), the depth of
the scene is not. Let a pixel of the current image look along (a, s, 1) at a point, and let ρ be the
ratio of the distance d that the car drove to the depth of this point. If the car turned by ψ, the
point was in the previous image at

    n  = cos ψ − a sin ψ + ρ,
    a' = (a cos ψ + sin ψ + (sin(ψ/2) + l sin ψ / d + drift) ρ) / n,
    s' = (s + tilt) / n − tilt + pitch + roll · a',

where l is the distance of the camera in front of the rear axle, about which a car turns, drift is
additional sideways motion, tilt is the position of the horizon, and pitch and roll are the rocking
of the car. Each pixel shows the road, where ρ = d (s + tilt) / height, or something else with its
own ρ, or nothing that was visible before.

1. The motion with the smallest differences of images is searched on a grid of turns at half the
   size, then on a grid of pitches, with the three cases and several values of ρ marginalized.
2. Gauss-Newton steps refine motion and ρ jointly: ρ is eliminated from the normal equations of
   each 3 × 3 pixels (Schur complement), and the probabilities of the cases are weights, as in
   expectation maximization. Weights are divided by the local variance of the residuals, which is
   small for distant objects and large for near ones, whose size and sampling change.

This is the method of Lucas and Kanade (An iterative image registration technique, IJCAI 1981) for a
moving camera, with depths as in direct visual odometry (Engel, Koltun and Cremers, Direct sparse
odometry, 2018). Nothing is fitted to data; the scale follows from the height of the camera.
"""

from filtrax.lab.tasks.kitti.flow.estimation import (
    estimate,
    estimate_motion,
    rough_distance,
    velocities,
)
from filtrax.lab.tasks.kitti.flow.refinement import Estimate

__all__ = ["Estimate", "estimate", "estimate_motion", "rough_distance", "velocities"]
