"""Raw annotations as training targets: pure functions on arrays, with LEAD's rules and numbers."""
