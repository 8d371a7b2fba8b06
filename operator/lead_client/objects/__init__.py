"""The objects of `lead.dev/v1alpha1` as Python values: specs and statuses are generated from the CRDs."""
