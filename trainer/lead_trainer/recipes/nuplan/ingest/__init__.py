"""Files of a nuPlan tree: logs, point clouds, pictures and maps, as plain values; every reader is bounded."""
