"""What a user should know of a stage that begins with random weights."""

from lead_trainer.recipes.lead.config import LeadConfig

TINY = "test_"  # begins timm's networks for tests, as in preset demo, whose random weights nobody takes for a mistake


def random_backbone(config: LeadConfig) -> str | None:
    """Returns what to say of an image backbone that the config gives no weights, None where it gives some.

    Nothing is said of a network for tests.
    """
    if config.backbone_weights or config.load_file or config.image_architecture.startswith(TINY):
        return None
    return (
        f"backbone_weights is not set: an image backbone without weights of another run begins with random ones, "
        f"LEAD's with ImageNet's; set it to a file of timm's {config.image_architecture}, nothing is downloaded"
    )
