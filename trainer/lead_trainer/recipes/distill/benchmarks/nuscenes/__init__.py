"""nuScenes prediction: a raster of the last 2 s to 6 s of one vehicle at 2 Hz."""
