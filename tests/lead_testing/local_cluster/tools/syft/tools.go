//go:build tools

// Package tools names syft, so that go.mod pins it.
package tools

import _ "github.com/anchore/syft/cmd/syft"
