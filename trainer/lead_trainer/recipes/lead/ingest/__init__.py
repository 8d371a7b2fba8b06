"""Raw LEAD files as arrays and plain objects; the only place that reads pickles, by an interpreter of its own."""
