"""Labels of a sweep in the vehicle's frame: boxes, ways, layers of the map, what the lidar has seen."""
