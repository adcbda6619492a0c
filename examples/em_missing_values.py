"""Learn the noise of a series with gaps by expectation maximization, and fill the gaps.

The flow of the Nile at Aswan from 1871 to 1970, in 10⁸ m³, of which two stretches of twenty years
are taken to be missing (Durbin & Koopman 2012, section 2.7). The model is a level that wanders.
"""

import jax
import jax.numpy as jnp

import filtrax
from filtrax.training import fit_em

jax.config.update("jax_enable_x64", True)

flow = """
1120 1160 963 1210 1160 1160 813 1230 1370 1140 995 935 1110 994 1020 960 1180 799 958 1140 1100
1210 1150 1250 1260 1220 1030 1100 774 840 874 694 940 833 701 916 692 1020 1050 969 831 726 456
824 702 1120 1100 832 764 821 768 845 864 862 698 845 744 796 1040 759 781 865 845 944 984 897
822 1010 771 676 649 846 812 742 801 1040 860 874 848 890 744 749 838 1050 918 986 797 923 975
815 1020 906 901 1170 912 746 919 718 714 740
"""
readings = jnp.asarray([float(word) for word in flow.split()])[:, None]
years = jnp.arange(1871, 1971)
observed = ~((years > 1890) & (years <= 1910) | (years > 1930) & (years <= 1950))

level = filtrax.StateSpaceModel(
    process=filtrax.Linear([[1.0]]),
    process_noise=filtrax.constant_noise([50.0]),
    observe=filtrax.Linear([[1.0]]),
    sensor=filtrax.DirectSensor(filtrax.constant_noise([100.0])),
)
prior = filtrax.Gaussian([1000.0], [[300.0**2]])
filt = filtrax.ExtendedKalmanFilter()  # the Kalman filter, as all is linear

data = filtrax.Trajectory(prior.mean, prior.covariance, readings, observed=observed)
learned = fit_em(
    filt,
    level,
    data,
    train=("model.process_noise", "model.sensor.noise"),
    num_steps=2000,
    tolerance=1e-12,
)
first, last = learned.log_likelihoods[[0, -1]]
stds = float(learned.model.process_noise.std[0]), float(learned.model.sensor.noise.std[0])
print(f"log likelihood {first:.4f} -> {last:.4f} in {len(learned.log_likelihoods) - 1} steps")
print(f"the level moves by {stds[0]:.2f} a year, a reading is off by {stds[1]:.2f}")

smoothed = filtrax.smooth(filt, learned.model, prior, readings, observed=observed)
for year in (1880, 1900, 1940, 1960):
    belief = jax.tree.map(lambda leaf, year=year: leaf[year - 1871], smoothed.beliefs)
    std = float(jnp.sqrt(belief.covariance[0, 0]))
    print(f"{year}: level {float(belief.mean[0]):.0f} ± {std:.0f}")
