//go:build tools

// Package tools names cosign, so that go.mod pins it.
package tools

import _ "github.com/sigstore/cosign/v2/cmd/cosign"
