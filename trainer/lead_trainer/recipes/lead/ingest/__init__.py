"""Raw LEAD files as arrays and plain objects; the only place that opens xz pickles, and only restricted ones."""
