"""The parts of TFv6; parameter names, order and shapes are LEAD's."""
