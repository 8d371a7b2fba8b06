//go:build tools

// Package tools names kind, so that go.mod pins it.
package tools

import _ "sigs.k8s.io/kind"
