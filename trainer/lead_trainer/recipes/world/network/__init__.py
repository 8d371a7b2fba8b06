"""The parts of the world model: pictures to latents, latents and actions to later latents, latents to pictures."""
