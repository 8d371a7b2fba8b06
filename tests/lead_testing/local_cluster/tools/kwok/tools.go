//go:build tools

// Package tools names kwok, so that go.mod pins it.
package tools

import _ "sigs.k8s.io/kwok/cmd/kwok"
