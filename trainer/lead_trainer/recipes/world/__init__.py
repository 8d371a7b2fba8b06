"""The recipe `world`: a latent world model of driving, which predicts the next pictures from pictures and actions."""
