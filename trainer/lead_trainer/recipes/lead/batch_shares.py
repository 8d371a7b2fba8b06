"""How a batch of several data sets is shared out among them; known from the config alone."""

from fractions import Fraction

from lead_trainer.data.node_shares import refuse_uneven_sections
from lead_trainer.errors import BadConfig
from lead_trainer.recipes.lead.config import LeadConfig

# CARLA's share of a batch from an epoch on (LEAD's Sim2RealSampleScheduler: 40, 32, 24, 16, 8, 0 of 64).
SIM2REAL_SHARES = ((31, Fraction(0)), (15, Fraction(1, 8)), (7, Fraction(1, 4)), (3, Fraction(3, 8)),
                   (1, Fraction(1, 2)), (0, Fraction(5, 8)))  # fmt: skip


def batch_shares(config: LeadConfig, sets: int, batch_size: int, epoch: int, canonical_nodes: int = 1) -> list[int]:
    """Returns how many samples of each data set a canonical node's section of a global batch has.

    Raises BadConfig where that is no whole number.
    """
    refuse_uneven_sections(batch_size, canonical_nodes)
    shares = [Fraction(1, sets)] * sets
    if config.schedule_carla_num_samples:
        carla = next(share for start, share in SIM2REAL_SHARES if epoch >= start)
        shares = [carla, 1 - carla]
    counts = [Fraction(batch_size, canonical_nodes) * share for share in shares]
    if any(count.denominator > 1 for count in counts):
        parts = 8 if config.schedule_carla_num_samples else sets
        raise BadConfig(
            f"batch_size: found {batch_size}, expected a multiple of {parts * canonical_nodes}, the parts it is mixed "
            "of" + (f" in the sections of {canonical_nodes} canonical_nodes" if canonical_nodes > 1 else "")
        )
    return [int(count) for count in counts]
