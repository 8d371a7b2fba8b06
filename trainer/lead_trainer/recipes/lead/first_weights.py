"""What a user should know of a stage that begins with random weights."""

from lead_trainer.recipes.lead.config import LeadConfig

TINY = "test_"  # begins timm's networks for tests, as in preset demo, whose random weights nobody takes for a mistake


def random_backbone(config: LeadConfig) -> str | None:
    """Returns a warning for an image backbone without weights in the config, None if it has some.

    There is no warning for a test network.
    """
    if config.backbone_weights or config.load_file or config.image_architecture.startswith(TINY):
        return None
    return (
        f"backbone_weights is not set: an image backbone without weights of another run begins with random ones, "
        f"LEAD's with ImageNet's; set it to a file of timm's {config.image_architecture}, nothing is downloaded"
    )
