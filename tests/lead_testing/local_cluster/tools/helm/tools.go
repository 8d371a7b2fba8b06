//go:build tools

// Package tools names helm, so that go.mod pins it.
package tools

import _ "helm.sh/helm/v3/cmd/helm"
