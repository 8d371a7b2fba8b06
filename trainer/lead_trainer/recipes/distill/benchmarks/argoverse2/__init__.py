"""Argoverse 2 motion forecasting: 5 s of tracks and the vector map to 6 s of the focal track."""
