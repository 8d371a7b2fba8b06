"""What a user should know of a stage that begins with random weights."""

from lead_trainer.recipes.lead.config import LeadConfig


def random_backbone(config: LeadConfig) -> str | None:
    """Returns what to say of an image backbone that the config gives no weights, None where it gives some."""
    if config.backbone_weights or config.load_file:
        return None
    return (
        f"backbone_weights is not set: an image backbone without weights of another run begins with random ones, "
        f"LEAD's with ImageNet's; set it to a file of timm's {config.image_architecture}, nothing is downloaded"
    )
